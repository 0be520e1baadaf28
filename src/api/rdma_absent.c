/* SPDX-License-Identifier: MIT */
/* The calls of strait/rdma.h in a build without the headers of libibverbs and librdmacm. */
#include <strait/rdma.h>

#include "api/api.h"
#include "base/util.h"

STRAIT_API int strait_rdma_missing_reason(char *text, size_t len)
{
	API_CHECK(text && len);
	str_copy(text, len, "this build has no RDMA: install libibverbs-dev and librdmacm-dev, and build again");
	return 0;
}

STRAIT_API int strait_rdma_probe(const char *nic, struct strait_region *region, struct strait_rdma_reach *reach)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_listen(struct strait_context *ctx, const struct strait_rdma_opts *opts,
				  struct strait_rdma_listener **ret)
{
	return -EOPNOTSUPP;
}

STRAIT_API void strait_rdma_listener_close(struct strait_rdma_listener *l)
{
}

STRAIT_API int strait_rdma_accept(struct strait_rdma_listener *l, int64_t timeout_ns, struct strait_rdma_session **ret)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_authenticate(struct strait_rdma_session *s)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_connect(struct strait_context *ctx, const struct strait_rdma_opts *opts,
				   struct strait_rdma_session **ret)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_cancel(struct strait_rdma_session *s)
{
	return -EOPNOTSUPP;
}

STRAIT_API void strait_rdma_close(struct strait_rdma_session *s)
{
}

STRAIT_API int strait_rdma_info(struct strait_rdma_session *s, struct strait_rdma_info *info)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_send(struct strait_rdma_session *s, const void *data, size_t len, int64_t timeout_ns)
{
	return -EOPNOTSUPP;
}

STRAIT_API ssize_t strait_rdma_recv(struct strait_rdma_session *s, void *buf, size_t len, int64_t timeout_ns)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_offer(struct strait_rdma_session *s, struct strait_region *region, uint64_t offset,
				 uint64_t length, uint32_t rights, int64_t lifetime_ns, struct strait_rdma_offer **ret)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_offer_text(struct strait_rdma_offer *o, char *text, struct strait_rdma_reach *reach)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_offer_flush(struct strait_rdma_offer *o)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_region_flush(struct strait_region *region)
{
	return -EOPNOTSUPP;
}

STRAIT_API void strait_rdma_offer_close(struct strait_rdma_offer *o)
{
}

STRAIT_API int strait_rdma_post(struct strait_rdma_session *s, const struct strait_rdma_request *q, int64_t timeout_ns,
				uint64_t *ticket)
{
	return -EOPNOTSUPP;
}

STRAIT_API int strait_rdma_wait(struct strait_rdma_session *s, uint64_t ticket, int64_t timeout_ns)
{
	return -EOPNOTSUPP;
}
