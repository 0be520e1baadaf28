/* SPDX-License-Identifier: MIT */
#include <strait/transfer.h>

#include "api/api.h"
#include "base/util.h"
#include "engine/queue/queue.h"
#include "engine/transfer/transfer.h"

STRAIT_API int strait_transfer_run(const struct strait_transfer *t, int64_t timeout_ns, struct strait_result *result)
{
	struct strait_result r;
	int rc;

	API_CHECK(t && result && t->endpoint && timeout_ns >= 0);
	API_ALIVE((struct strait_context *)t->endpoint->owner);
	rc = transfer_check(t->endpoint->owner, t);
	if (!rc)
		rc = transfer_begin(t);
	if (rc) {
		memset(result, 0, sizeof(*result));
		result->user_data = t->user_data;
		result->status = rc;
		return rc;
	}
	transfer_execute(t, os_deadline(timeout_ns), NULL, false, &r);
	transfer_end(t, 1);
	*result = r;
	return r.status;
}

static ssize_t run_simple(uint32_t op, struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
			  uint64_t offset, size_t len)
{
	struct strait_transfer t = { .op = op,
				     .endpoint = ep,
				     .region = region,
				     .endpoint_offset = ep_offset,
				     .region_offset = offset,
				     .length = len };
	struct strait_result r;
	int rc = strait_transfer_run(&t, STRAIT_FOREVER, &r);

	return rc ? rc : (ssize_t)r.bytes;
}

STRAIT_API ssize_t strait_read(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
			       uint64_t offset, size_t len)
{
	return run_simple(STRAIT_READ, ep, ep_offset, region, offset, len);
}

STRAIT_API ssize_t strait_write(struct strait_endpoint *ep, uint64_t ep_offset, struct strait_region *region,
				uint64_t offset, size_t len)
{
	return run_simple(STRAIT_WRITE, ep, ep_offset, region, offset, len);
}

STRAIT_API int strait_queue_open(struct strait_context *ctx, const struct strait_queue_opts *opts,
				 struct strait_queue **ret)
{
	API_CHECK(ctx && ret);
	API_ALIVE(ctx);
	return queue_open(ctx, opts, ret);
}

STRAIT_API int strait_queue_submit(struct strait_queue *queue, const struct strait_transfer *t, unsigned int n)
{
	API_CHECK(queue && (t || !n));
	API_ALIVE(queue_context(queue));
	return n ? queue_submit(queue, t, n) : 0;
}

STRAIT_API int strait_queue_wait(struct strait_queue *queue, unsigned int min, unsigned int max, int64_t timeout_ns,
				 struct strait_result *results)
{
	API_CHECK(queue && (results || !max));
	API_ALIVE(queue_context(queue));
	return queue_wait(queue, min, max, timeout_ns, results);
}

STRAIT_API int strait_queue_fd(struct strait_queue *queue)
{
	API_CHECK(queue);
	API_ALIVE(queue_context(queue));
	return queue_fd(queue);
}

STRAIT_API int strait_queue_cancel(struct strait_queue *queue, uint64_t user_data)
{
	API_CHECK(queue);
	API_ALIVE(queue_context(queue));
	return queue_cancel(queue, user_data);
}

STRAIT_API void strait_queue_close(struct strait_queue *queue)
{
	if (queue && !engine_alive(queue_context(queue)))
		queue_close(queue);
}
