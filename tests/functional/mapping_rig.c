/* SPDX-License-Identifier: MIT */
#include "mapping_rig.h"

#include <sys/prctl.h>

void become_user(void)
{
	if (getuid())
		return;
	ASSERT_EQ(chown(test_dir(), 65534, 65534), 0);
	ASSERT_EQ(chmod(test_path(".."), 0711), 0);
	ASSERT_EQ(setresgid(65534, 65534, 65534), 0);
	ASSERT_EQ(setresuid(65534, 65534, 65534), 0);
	/* As after execve(2) by that user: /proc/self is its own. */
	prctl(PR_SET_DUMPABLE, 1);
}

void mapping_rig_open(struct mapping_rig *r, const struct mapping_mode *v, uint64_t len,
		      const struct strait_mapping_opts *opts)
{
	struct strait_mapping_opts o = { .size = sizeof(o) };

	if (opts)
		o = *opts;
	o.flags |= v->flags;
	if (v->user)
		become_user();
	*r = (struct mapping_rig){ .len = len };
	r->path = strdup(make_file("mapped", len, 1));
	r->ctx = context_new(NULL);
	r->dev = device_named(r->ctx, v->device);
	r->ep = file_new(r->ctx, r->path, o.flags & STRAIT_MAPPING_READ_ONLY ? O_RDONLY : O_RDWR, 0);
	ASSERT_OK(strait_mapping_open(r->ctx, r->ep, 0, 0, &o, &r->m));
	r->cpu = mapping_info_of(r->m).addr;
	ASSERT_EQ(mapping_info_of(r->m).length, len);
}

void mapping_rig_map(struct mapping_rig *r, const struct mapping_mode *v, const char *path)
{
	struct strait_mapping_opts o = { .size = sizeof(o), .flags = v->flags };

	*r = (struct mapping_rig){ .path = strdup(path), .ctx = context_new(NULL) };
	r->dev = device_named(r->ctx, v->device);
	r->ep = file_new(r->ctx, path, O_RDWR, 0);
	ASSERT_OK(strait_mapping_open(r->ctx, r->ep, 0, 0, &o, &r->m));
	r->cpu = mapping_info_of(r->m).addr;
	r->len = mapping_info_of(r->m).length;
}

void mapping_rig_close(struct mapping_rig *r)
{
	strait_mapping_close(r->m);
	strait_endpoint_close(r->ep);
	strait_context_close(r->ctx);
	free((char *)r->path);
}

struct strait_mapping_info mapping_info_of(struct strait_mapping *m)
{
	struct strait_mapping_info info = { .size = sizeof(info) };

	ASSERT_OK(strait_mapping_info(m, &info));
	return info;
}

void device_store(struct strait_context *ctx, void *addr, const void *buf, size_t len)
{
	struct strait_region *region;
	uint64_t off;

	ASSERT_OK(strait_region_lookup(ctx, addr, &off, &region));
	ASSERT_OK(strait_region_copy_in(region, off, buf, len));
	strait_region_close(region);
}

void device_load(struct strait_context *ctx, const void *addr, void *buf, size_t len)
{
	struct strait_region *region;
	uint64_t off;

	ASSERT_OK(strait_region_lookup(ctx, addr, &off, &region));
	ASSERT_OK(strait_region_copy_out(region, off, buf, len));
	strait_region_close(region);
}

void device_expect(struct strait_context *ctx, const void *addr, const void *want, size_t len)
{
	char *buf = malloc(len);

	device_load(ctx, addr, buf, len);
	ASSERT_MEMEQ(buf, want, len);
	free(buf);
}

void side_write(struct mapping_rig *r, struct strait_device *dev, uint64_t off, const void *buf, size_t len)
{
	void *at;

	ASSERT_OK(strait_mapping_acquire(r->m, dev, off, len, STRAIT_INTENT_WRITE, &at));
	if (dev)
		device_store(r->ctx, at, buf, len);
	else
		memcpy(at, buf, len);
	ASSERT_OK(strait_mapping_release(r->m, dev, off, len, STRAIT_INTENT_WRITE));
}

void side_expect(struct mapping_rig *r, struct strait_device *dev, uint64_t off, const void *want, size_t len)
{
	void *at;

	ASSERT_OK(strait_mapping_acquire(r->m, dev, off, len, STRAIT_INTENT_READ, &at));
	if (dev)
		device_expect(r->ctx, at, want, len);
	else
		ASSERT_MEMEQ(at, want, len);
	ASSERT_OK(strait_mapping_release(r->m, dev, off, len, STRAIT_INTENT_READ));
}
