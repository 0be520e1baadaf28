/* SPDX-License-Identifier: MIT */
/* A server: its listener, its sessions' threads, its end. */
#include "service/rdma_serve.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/util.h"

#define DEFAULT_SESSIONS 64u
#define MOST_SESSIONS 1024u

void served_close(struct served *e)
{
	struct strait_rdma_session *s = e->session;

	pthread_mutex_lock(&e->lock);
	e->session = NULL;
	pthread_mutex_unlock(&e->lock);
	strait_rdma_close(s);
}

static void served_cancel(struct served *e)
{
	pthread_mutex_lock(&e->lock);
	if (e->session)
		strait_rdma_cancel(e->session);
	pthread_mutex_unlock(&e->lock);
}

static void *session_thread(void *arg)
{
	struct served *e = arg;

	if (strait_rdma_authenticate(e->session)) {
		atomic_fetch_add(&e->server->refused, 1);
		served_close(e);
	} else {
		atomic_fetch_add(&e->server->accepted, 1);
		serving_run(e);
	}
	atomic_fetch_sub(&e->server->sessions, 1);
	atomic_store(&e->ended, true);
	return NULL;
}

/* Signals of the application are not delivered to threads of the library. */
static int start_thread(pthread_t *thread, void *(*fn)(void *), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

/* A free entry, after the threads that have ended are joined; NULL if there is none. */
static struct served *free_entry(struct strait_rdma_server *v)
{
	struct served *found = NULL;

	for (uint32_t i = 0; i < v->limit; i++) {
		struct served *e = &v->served[i];

		if (e->used && atomic_load(&e->ended)) {
			pthread_join(e->thread, NULL);
			e->used = false;
		}
		if (!e->used && !found)
			found = e;
	}
	return found;
}

static void *accept_thread(void *arg)
{
	struct strait_rdma_server *v = arg;

	while (!atomic_load(&v->stop)) {
		struct strait_rdma_session *s;
		struct served *e;
		int rc = strait_rdma_accept(v->listener, STOP_NS, &s);

		/* Without memory for a connection the next one may succeed. */
		if (rc && rc != -ETIMEDOUT)
			usleep(10000);
		e = free_entry(v);
		if (rc)
			continue;
		if (e) {
			e->server = v;
			e->session = s;
			atomic_store(&e->ended, false);
			atomic_fetch_add(&v->sessions, 1);
			e->used = !start_thread(&e->thread, session_thread, e);
			if (e->used)
				continue;
			atomic_fetch_sub(&v->sessions, 1);
		}
		atomic_fetch_add(&v->refused, 1);
		strait_rdma_close(s);
	}
	for (uint32_t i = 0; i < v->limit; i++)
		if (v->served[i].used)
			served_cancel(&v->served[i]);
	for (uint32_t i = 0; i < v->limit; i++)
		if (v->served[i].used)
			pthread_join(v->served[i].thread, NULL);
	return NULL;
}

static void free_served(struct strait_rdma_server *v)
{
	for (uint32_t i = 0; i < v->limit; i++)
		pthread_mutex_destroy(&v->served[i].lock);
	free(v->served);
}

STRAIT_API int strait_rdma_serve(struct strait_context *ctx, const struct strait_rdma_server_opts *user,
				 struct strait_rdma_server **ret)
{
	struct strait_rdma_server_opts o = { .size = sizeof(o) };
	struct strait_rdma_opts session = { .size = sizeof(session) };
	struct strait_rdma_server *v;
	int rc;

	if (!ctx || !user || !ret)
		return -EINVAL;
	rc = struct_in(&o, sizeof(o), user, STRAIT_RDMA_SERVER_OPTS_SIZE_V1);
	if (!rc && o.session)
		rc = struct_in(&session, sizeof(session), o.session, STRAIT_RDMA_OPTS_SIZE_V1);
	if (rc)
		return rc;
	if (o.flags & ~STRAIT_RDMA_SERVE_WRITE || o.sessions > MOST_SESSIONS || o.reserved)
		return -EINVAL;
	if (!o.root && !o.export_count)
		return -ENOENT;
	session.role = STRAIT_RDMA_INITIATES;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->ctx = ctx;
	v->flags = o.flags;
	v->limit = o.sessions ? o.sessions : DEFAULT_SESSIONS;
	rc = exports_copy(v, o.exports, o.export_count);
	if (rc)
		goto free_server;
	v->root = o.root ? open(o.root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (o.root && v->root < 0) {
		rc = -errno;
		goto free_exports;
	}
	v->served = calloc(v->limit, sizeof(*v->served));
	if (!v->served) {
		rc = -ENOMEM;
		goto close_root;
	}
	for (uint32_t i = 0; i < v->limit; i++)
		pthread_mutex_init(&v->served[i].lock, NULL);
	rc = strait_rdma_listen(ctx, &session, &v->listener);
	if (rc)
		goto free_sessions;
	rc = start_thread(&v->acceptor, accept_thread, v);
	if (rc)
		goto close_listener;
	*ret = v;
	return 0;
close_listener:
	strait_rdma_listener_close(v->listener);
free_sessions:
	free_served(v);
close_root:
	if (v->root >= 0)
		close(v->root);
free_exports:
	free(v->export);
free_server:
	free(v);
	return rc;
}

STRAIT_API int strait_rdma_server_info(struct strait_rdma_server *v, struct strait_rdma_server_info *info)
{
	struct strait_rdma_server_info i = { .size = sizeof(i) };

	if (!v || !info)
		return -EINVAL;
	i.sessions = atomic_load(&v->sessions);
	i.accepted = atomic_load(&v->accepted);
	i.refused = atomic_load(&v->refused);
	i.bytes_out = atomic_load(&v->bytes_out);
	i.bytes_in = atomic_load(&v->bytes_in);
	i.requests = atomic_load(&v->requests);
	i.signalled = atomic_load(&v->signalled);
	return struct_out(info, &i, sizeof(i), STRAIT_RDMA_SERVER_INFO_SIZE_V1);
}

STRAIT_API void strait_rdma_server_close(struct strait_rdma_server *v)
{
	if (!v)
		return;
	atomic_store(&v->stop, true);
	pthread_join(v->acceptor, NULL);
	strait_rdma_listener_close(v->listener);
	free_served(v);
	if (v->root >= 0)
		close(v->root);
	free(v->export);
	free(v);
}
