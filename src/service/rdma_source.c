/* SPDX-License-Identifier: MIT */
/* What a session reads from and writes to: a file of the directory, or an export. */
#include <errno.h>
#include <stdlib.h>
#include <strait/endpoint.h>
#include <strait/nvme.h>
#include <strait/region.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "service/rdma_serve.h"

/* The length now, and whether it ends there. -EOPNOTSUPP for an endpoint that is neither a drive nor a file. */
static int describe(const struct export *e, uint64_t *length, bool *fixed)
{
	struct strait_nvme_endpoint_info drive = { .size = sizeof(drive) };
	struct strait_region_info memory = { .size = sizeof(memory) };
	struct strait_file_info file = { .size = sizeof(file) };
	int rc;

	*fixed = true;
	if (e->region) {
		rc = strait_region_info(e->region, &memory);
		*length = memory.length;
		return rc;
	}
	rc = strait_file_info(e->endpoint, &file);
	if (!rc) {
		*length = file.length;
		*fixed = file.caps & STRAIT_FILE_IS_BLOCK;
		return 0;
	}
	if (rc != -EINVAL)
		return rc;
	rc = strait_nvme_endpoint_info(e->endpoint, &drive);
	*length = drive.length;
	return rc == -EINVAL ? -EOPNOTSUPP : rc;
}

static bool is_name(const char *name)
{
	static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

	return name && *name && strlen(name) <= STRAIT_RDMA_EXPORT_NAME && !name[strspn(name, allowed)];
}

static const struct export *find(const struct strait_rdma_server *v, const char *name)
{
	for (uint32_t i = 0; i < v->export_count; i++)
		if (!strcmp(v->export[i].name, name))
			return &v->export[i];
	return NULL;
}

static int add(struct strait_rdma_server *v, const struct strait_rdma_export *from)
{
	struct export *e = &v->export[v->export_count];
	uint64_t length;
	bool fixed;
	int rc;

	if (!is_name(from->name) || find(v, from->name) || !from->endpoint == !from->region || from->reserved ||
	    from->flags & ~STRAIT_RDMA_EXPORT_WRITE)
		return -EINVAL;
	str_copy(e->name, sizeof(e->name), from->name);
	e->endpoint = from->endpoint;
	e->region = from->region;
	e->writable = from->flags & STRAIT_RDMA_EXPORT_WRITE;
	rc = describe(e, &length, &fixed);
	v->export_count += !rc;
	return rc;
}

int exports_copy(struct strait_rdma_server *v, const struct strait_rdma_export *from, uint32_t n)
{
	int rc;

	if (n > STRAIT_RDMA_EXPORTS_MAX || (n && !from))
		return -EINVAL;
	if (!n)
		return 0;
	/* Memory of a server that is started again has other bytes: it must not take the place of this one's. */
	if (getentropy(&v->instance, sizeof(v->instance)))
		return -errno;
	v->export = calloc(n, sizeof(*v->export));
	if (!v->export)
		return -ENOMEM;
	rc = 0;
	for (uint32_t i = 0; !rc && i < n; i++)
		rc = add(v, &from[i]);
	if (rc)
		free(v->export);
	return rc;
}

static int open_export(struct strait_rdma_server *v, const char *name, bool write, struct source *src,
		       struct proto_reply *r)
{
	const struct export *e = find(v, name);
	bool fixed;
	int rc;

	if (!e)
		return -ENOENT;
	if (write && !e->writable)
		return -EROFS;
	rc = describe(e, &r->length, &fixed);
	if (rc)
		return rc;
	*src = (struct source){
		.endpoint = e->endpoint, .region = e->region, .length = r->length, .fixed = fixed, .writable = write
	};
	r->inode = v->instance + (uint64_t)(e - v->export);
	return 0;
}

static int open_file(struct strait_rdma_server *v, const char *path, bool write, struct source *src,
		     struct proto_reply *r)
{
	struct strait_endpoint *ep;
	struct stat st;
	int fd, rc;

	if (v->root < 0)
		return -ENOENT;
	if (write && !(v->flags & STRAIT_RDMA_SERVE_WRITE))
		return -EROFS;
	fd = export_open(v->root, path, write);
	if (fd < 0)
		return fd;
	rc = fstat(fd, &st) ? -errno : strait_file_import(v->ctx, fd, 0, &ep);
	close(fd); /* the endpoint has its own */
	if (rc)
		return rc;
	*src = (struct source){ .endpoint = ep, .owned = true, .writable = write };
	r->length = (uint64_t)st.st_size;
	r->inode = st.st_ino;
	r->mtime = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	return 0;
}

int source_open(struct strait_rdma_server *v, const char *path, bool write, struct source *src, struct proto_reply *r)
{
	struct source next;
	int rc = *path == '@' ? open_export(v, path + 1, write, &next, r) : open_file(v, path, write, &next, r);

	if (rc)
		return rc;
	source_close(src);
	*src = next;
	return 0;
}

void source_close(struct source *src)
{
	if (src->owned)
		strait_endpoint_close(src->endpoint);
	*src = (struct source){ 0 };
}

int source_sync(const struct source *src)
{
	if (src->region)
		return strait_rdma_region_flush(src->region);
	return src->endpoint ? strait_endpoint_sync(src->endpoint) : -EBADF;
}
