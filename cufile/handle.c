/* SPDX-License-Identifier: MIT */
/* Registered files. */
#include "file.h"
#include "params.h"
#include "stats.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

struct cf_file *cf_file_get(CUfileHandle_t fh)
{
	struct cf_file *f = NULL;
	struct cf_node *n;

	pthread_mutex_lock(&cf.lock);
	n = cf_hash_find(&cf.files, (uintptr_t)fh);
	if (n) {
		f = cf_object(n, struct cf_file, by_handle);
		cf_file_ref(f, 1);
	}
	pthread_mutex_unlock(&cf.lock);
	return f;
}

void cf_file_ref(struct cf_file *f, unsigned int n)
{
	atomic_fetch_add_explicit(&f->refs, n, memory_order_relaxed);
}

static void file_free(struct cf_file *f)
{
	strait_endpoint_close(atomic_load(&f->leased));
	strait_endpoint_close(f->ep);
	pthread_mutex_destroy(&f->lease_lock);
	free(f);
}

void cf_file_put(struct cf_file *f, unsigned int n)
{
	if (atomic_fetch_sub_explicit(&f->refs, n, memory_order_acq_rel) == n)
		file_free(f);
}

void cf_files_forked(void)
{
	cf.files = cf.files_by_fd = (struct cf_hash){ 0 };
}

void cf_files_drop_all(void)
{
	struct cf_hash all, by_fd;
	struct cf_node *n;

	/* Both tables are emptied under one lock: no lookup sees a file in only one of them. */
	pthread_mutex_lock(&cf.lock);
	all = cf.files;
	by_fd = cf.files_by_fd;
	cf_files_forked();
	pthread_mutex_unlock(&cf.lock);
	free(by_fd.buckets);
	for (size_t i = 0; i < all.size; i++)
		while ((n = all.buckets[i])) {
			all.buckets[i] = n->next;
			cf_file_put(cf_object(n, struct cf_file, by_handle), 1);
		}
	free(all.buckets);
}

/* The descriptor belongs to the application and may be another file by now. f->ep if there is no lease. */
static struct strait_endpoint *file_import_leased(struct cf_file *f)
{
	struct strait_endpoint *ep = f->ep;
	struct strait_context *ctx;
	struct stat st;

	if (cf_enter_open(&ctx))
		return ep;
	if (!fstat(f->fd, &st) && st.st_dev == f->dev && st.st_ino == f->ino && S_ISREG(st.st_mode) &&
	    strait_file_import(ctx, f->fd, STRAIT_FILE_LEASE, &ep))
		ep = f->ep;
	cf_leave();
	return ep;
}

/*
 * While a read lease is held the file cannot change, so the device may read it directly from the page cache. A process
 * that opens the file for writing blocks until the lease is released. That cost is worth it only for batches and
 * streams, and only if the application itself cannot write through the handle.
 */
struct strait_endpoint *cf_file_endpoint(struct cf_file *f, uint32_t op)
{
	struct strait_endpoint *ep;

	if (op != STRAIT_READ || !f->lease_wanted || !cf.leases)
		return f->ep;
	ep = atomic_load_explicit(&f->leased, memory_order_acquire);
	if (ep)
		return ep;
	pthread_mutex_lock(&f->lease_lock);
	ep = atomic_load(&f->leased);
	if (!ep) {
		ep = file_import_leased(f);
		if (ep == f->ep)
			f->lease_wanted = false;
		else
			atomic_store(&f->leased, ep);
	}
	pthread_mutex_unlock(&f->lease_lock);
	return ep;
}

/* Is this file registered under this descriptor? A descriptor number that was closed and reused is another file. */
static bool fd_is_registered_locked(int fd, const struct stat *st)
{
	for (struct cf_node *n = cf_hash_find(&cf.files_by_fd, (uintptr_t)fd); n; n = cf_hash_again(n)) {
		const struct cf_file *f = cf_object(n, struct cf_file, by_fd);

		if (f->dev == st->st_dev && f->ino == st->st_ino)
			return true;
	}
	return false;
}

/* Logs the route to each device. Fails if compatibility mode is forbidden and no device can use the p2p route. */
static int check_routes(struct strait_context *ctx, struct strait_endpoint *ep, int fd)
{
	bool compat = cf_param_bool(CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE), direct = false,
	     log = cf_log_enabled(CF_INFO);
	struct strait_device *dev;

	if (compat && !log)
		return CU_FILE_SUCCESS;
	for (unsigned int i = 0; !strait_device_at(ctx, i, &dev); i++) {
		struct strait_route_report r = { .size = sizeof(r) };
		struct strait_device_info d = { .size = sizeof(d) };

		if (strait_device_info(dev, &d) || strait_route_query_device(ep, dev, STRAIT_READ, &r))
			continue;
		direct = direct || r.verdict[STRAIT_ROUTE_P2P].usable;
		if (log) {
			char why[256];

			strait_route_verdict_text(&r.verdict[STRAIT_ROUTE_P2P], why, sizeof(why));
			cf_log(CF_INFO, "fd %d to %s: route %s; p2p: %s", fd, d.name, strait_route_name(r.route), why);
		}
	}
	if (compat || direct)
		return CU_FILE_SUCCESS;
	cf_log(CF_ERROR, "fd %d: not registered: allow_compat_mode is false and no device can use the p2p route", fd);
	return CU_FILE_IO_NOT_SUPPORTED;
}

static int check_descr(const CUfileDescr_t *d, struct stat *st)
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

static int file_add_locked(struct cf_file *f, const struct stat *st)
{
	if (fd_is_registered_locked(f->fd, st))
		return CU_FILE_HANDLE_ALREADY_REGISTERED;
	if (cf_hash_add(&cf.files, &f->by_handle, (uintptr_t)f))
		return CU_FILE_NOMEM_ERROR;
	if (!cf_hash_add(&cf.files_by_fd, &f->by_fd, (uintptr_t)f->fd))
		return CU_FILE_SUCCESS;
	cf_hash_del(&cf.files, &f->by_handle);
	return CU_FILE_NOMEM_ERROR;
}

static int file_new(struct strait_context *ctx, const CUfileDescr_t *d, CUfileHandle_t *fh)
{
	struct cf_file *f;
	struct stat st;
	int code, rc;

	code = check_descr(d, &st);
	if (code)
		return code;
	f = calloc(1, sizeof(*f));
	if (!f)
		return CU_FILE_NOMEM_ERROR;
	f->refs = 1;
	f->fd = d->handle.fd;
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->lease_wanted = (fcntl(f->fd, F_GETFL) & (O_ACCMODE | O_DIRECT)) == O_RDONLY &&
			  !cf_param_bool(CUFILE_PARAM_FORCE_ODIRECT_MODE);
	pthread_mutex_init(&f->lease_lock, NULL);
	rc = strait_file_import(ctx, f->fd, cf_param_bool(CUFILE_PARAM_FORCE_ODIRECT_MODE) ? STRAIT_FILE_DIRECT : 0,
				&f->ep);
	code = rc ? cf_code_of_errno(rc) : check_routes(ctx, f->ep, f->fd);
	if (!code) {
		pthread_mutex_lock(&cf.lock);
		code = file_add_locked(f, &st);
		pthread_mutex_unlock(&cf.lock);
	}
	if (code) {
		file_free(f);
		return code;
	}
	*fh = f;
	return CU_FILE_SUCCESS;
}

static int handle_register(CUfileHandle_t *fh, const CUfileDescr_t *d)
{
	struct strait_context *ctx;
	int code;

	if (!fh || !d)
		return CU_FILE_INVALID_VALUE;
	code = cf_enter(&ctx);
	if (code)
		return code;
	code = file_new(ctx, d, fh);
	cf_leave();
	return code;
}

CF_API CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	int code = handle_register(fh, descr);

	cf_stat_op(CF_HANDLE_REG, !code);
	if (code)
		cf_log(CF_WARN, "cuFileHandleRegister: %s", cufileop_status_error((CUfileOpError)code));
	return cf_error(code);
}

CF_API void cuFileHandleDeregister(CUfileHandle_t fh)
{
	struct cf_file *f = NULL;
	struct cf_node *n;

	pthread_mutex_lock(&cf.lock);
	n = cf_hash_find(&cf.files, (uintptr_t)fh);
	if (n) {
		f = cf_object(n, struct cf_file, by_handle);
		cf_hash_del(&cf.files, n);
		cf_hash_del(&cf.files_by_fd, &f->by_fd);
	}
	pthread_mutex_unlock(&cf.lock);
	cf_stat_op(CF_HANDLE_DEREG, f != NULL);
	cf_streams_reap();
	if (f)
		cf_file_put(f, 1);
}
