/* SPDX-License-Identifier: MIT */
/* Registered files. */
#include "core.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

struct cf_file *cf_file_get(CUfileHandle_t fh)
{
	struct cf_file *f;

	pthread_mutex_lock(&cf.lock);
	for (f = cf.files; f && f != fh; f = f->next)
		;
	if (f)
		f->refs++;
	pthread_mutex_unlock(&cf.lock);
	return f;
}

void cf_file_put(struct cf_file *f)
{
	bool last;

	pthread_mutex_lock(&cf.lock);
	last = !--f->refs;
	pthread_mutex_unlock(&cf.lock);
	if (!last)
		return;
	strait_endpoint_close(f->ep);
	free(f);
}

struct cf_file *cf_files_take(void)
{
	struct cf_file *all = cf.files;

	cf.files = NULL;
	return all;
}

/* The same descriptor, and it still is the file it was: a number closed and given anew is another. */
static bool registered(int fd, const struct stat *st)
{
	const struct cf_file *f;

	for (f = cf.files; f; f = f->next)
		if (f->fd == fd && f->dev == st->st_dev && f->ino == st->st_ino)
			return true;
	return false;
}

/* Says how the file will travel, and for whoever forbids the compatible way, whether it can at all. */
static int routes(struct strait_context *ctx, struct strait_endpoint *ep, int fd)
{
	bool compat = cf_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE), direct = false, tell = cf_logs(CF_INFO);
	struct strait_device *dev;

	if (compat && !tell)
		return CU_FILE_SUCCESS;
	for (unsigned int i = 0; !strait_device_at(ctx, i, &dev); i++) {
		struct strait_route_report r = { .size = sizeof(r) };
		struct strait_device_info d = { .size = sizeof(d) };

		if (strait_device_info(dev, &d) || strait_route_query_device(ep, dev, STRAIT_READ, &r))
			continue;
		direct = direct || r.verdict[STRAIT_ROUTE_P2P].usable;
		if (tell)
			cf_log(CF_INFO, "fd %d to %s: route %s; p2p: %s", fd, d.name, strait_route_name(r.route),
			       r.verdict[STRAIT_ROUTE_P2P].why);
	}
	if (compat || direct)
		return CU_FILE_SUCCESS;
	cf_log(CF_ERROR, "fd %d: no device takes the p2p route and allow_compat_mode is false", fd);
	return CU_FILE_IO_NOT_SUPPORTED;
}

static int check(const CUfileDescr_t *d, struct stat *st)
{
	int oflags;

	if (d->type != CU_FILE_HANDLE_TYPE_OPAQUE_FD)
		return CU_FILE_IO_NOT_SUPPORTED;
	oflags = fcntl(d->handle.fd, F_GETFL);
	if (oflags < 0 || fstat(d->handle.fd, st))
		return CU_FILE_INVALID_VALUE;
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
		return CU_FILE_INVALID_FILE_TYPE;
	return oflags & O_APPEND ? CU_FILE_INVALID_FILE_OPEN_FLAG : CU_FILE_SUCCESS;
}

static int handle_register(CUfileHandle_t *fh, const CUfileDescr_t *d)
{
	struct strait_context *ctx;
	struct cf_file *f;
	struct stat st;
	int code, rc;

	if (!fh || !d)
		return CU_FILE_INVALID_VALUE;
	code = cf_open_implicit();
	if (!code)
		code = check(d, &st);
	if (code)
		return code;
	ctx = cf_context();
	f = calloc(1, sizeof(*f));
	if (!f || !ctx) {
		free(f);
		return ctx ? CU_FILE_NOMEM_ERROR : CU_FILE_DRIVER_NOT_INITIALIZED;
	}
	*f = (struct cf_file){ .refs = 1, .fd = d->handle.fd, .dev = st.st_dev, .ino = st.st_ino };
	rc = strait_file_import(ctx, f->fd, cf_bool(CUFILE_PARAM_FORCE_ODIRECT_MODE) ? STRAIT_FILE_DIRECT : 0, &f->ep);
	code = rc ? cf_code(rc) : routes(ctx, f->ep, f->fd);
	if (!code) {
		pthread_mutex_lock(&cf.lock);
		if (registered(f->fd, &st)) {
			code = CU_FILE_HANDLE_ALREADY_REGISTERED;
		} else {
			f->next = cf.files;
			cf.files = f;
		}
		pthread_mutex_unlock(&cf.lock);
	}
	if (code) {
		strait_endpoint_close(f->ep);
		free(f);
		return code;
	}
	*fh = f;
	return CU_FILE_SUCCESS;
}

CF_API CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	int code = handle_register(fh, descr);

	cf_stat_op(CF_HANDLE_REG, !code);
	if (code)
		cf_log(CF_WARN, "a file cannot be registered: %s", cufileop_status_error((CUfileOpError)code));
	return cf_error(code);
}

CF_API void cuFileHandleDeregister(CUfileHandle_t fh)
{
	struct cf_file *f = NULL, **at;

	pthread_mutex_lock(&cf.lock);
	for (at = &cf.files; *at && *at != fh; at = &(*at)->next)
		;
	if (*at) {
		f = *at;
		*at = f->next;
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_HANDLE_DEREG, f != NULL);
	cf_streams_reap();
	if (f)
		cf_file_put(f);
}
