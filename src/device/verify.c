/* SPDX-License-Identifier: MIT */
#include "device/verify.h"

#include "base/util.h"
#include "device/scratch.h"

int verify_block(struct dev_stream *s, uint64_t addr, const void *want, void *back, uint64_t len,
		 verify_write_fn *write, void *arg)
{
	const struct provider_ops *ops = s->dev->ops;
	const uint8_t *from = want;
	uint8_t *to = back;
	int rc;

	for (uint64_t i = 0; i < len; i++)
		to[i] = (uint8_t)~from[i];
	rc = ops->copy_now(s, addr, back, len, false);
	if (!rc)
		rc = write(arg);
	if (rc)
		return rc;
	rc = ops->flush_peer_writes(s->dev);
	if (rc && rc != -EOPNOTSUPP)
		return rc;
	rc = ops->copy_now(s, addr, back, len, true);
	if (rc)
		return rc;
	return memcmp(back, want, len) ? -EREMOTEIO : 0;
}

int verify_once(verify_verdict *known, struct strait_device *dev, verify_peer_fn *peer, void *arg)
{
	struct strait_region *r;
	struct dev_stream *s;
	int rc;

	if (atomic_load(known))
		return atomic_load(known) > 0 ? 0 : -EREMOTEIO;
	rc = device_scratch_get(dev, &r);
	if (rc)
		return rc;
	rc = dev->ops->stream_open(dev, &r->mem, &s);
	if (!rc) {
		rc = peer(r, s, arg);
		dev->ops->stream_close(s);
	}
	device_scratch_put(r);
	if (!rc || rc == -EREMOTEIO)
		atomic_store(known, rc ? -1 : 1);
	return rc;
}
