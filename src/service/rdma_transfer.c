/* SPDX-License-Identifier: MIT */
/* Pull and push: windows of a file, several in flight, resumed after a lost connection. */
#include <errno.h>
#include <strait/device.h>
#include <strait/region.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "service/rdma_client.h"

#define DEFAULT_NS 30000000000ull
#define WINDOW_BYTES MIB(4)
#define WINDOWS 4u /* in flight */

struct job {
	struct strait_rdma_client *c;
	struct strait_rdma_file f;
	bool push;
	int64_t timeout_ns;
	uint64_t acked;		       /* bytes from the start that are transferred */
	uint64_t length, inode, mtime; /* of the file when it was first opened */
	bool opened;
	struct strait_rdma_result *res;
};

/* Is it an error of the connection, not of the request? */
static bool is_lost(int err)
{
	return err == -ECONNRESET || err == -EIO || err == -ETIMEDOUT || err == -ECONNREFUSED || err == -EHOSTUNREACH;
}

static int open_file(struct job *j)
{
	struct proto_request q = { .op = PROTO_OPEN, .flags = j->push ? PROTO_OPEN_WRITE : 0 };
	struct proto_reply r;
	int rc;

	str_copy(q.path, sizeof(q.path), j->f.path);
	rc = client_call(j->c, &q, j->timeout_ns, &r);
	if (rc)
		return rc;
	if (j->opened && !j->push && (r.length != j->length || r.inode != j->inode || r.mtime != j->mtime))
		return -ESTALE;
	j->length = r.length;
	j->inode = r.inode;
	j->mtime = r.mtime;
	j->opened = true;
	return 0;
}

static int stage_alloc(struct strait_rdma_client *c)
{
	struct strait_device *host;
	int rc;

	if (c->stage)
		return 0;
	rc = strait_device_find(c->ctx, "host", &host);
	if (!rc)
		rc = strait_region_alloc(host, WINDOW_BYTES * WINDOWS, &c->stage);
	return rc ? rc : strait_region_map(c->stage, &c->stage_cpu);
}

static int make_offer(struct job *j, uint32_t rights)
{
	struct strait_region_info info = { .size = sizeof(info) };
	struct strait_rdma_client *c = j->c;
	const char *nic;
	int rc = strait_region_info(j->f.region, &info);
	struct strait_rdma_info session = { .size = sizeof(session) };

	if (rc)
		return rc;
	rc = strait_rdma_offer(c->session, j->f.region, 0, info.length, rights, STRAIT_FOREVER, &c->offer);
	c->staged = rc == -EOPNOTSUPP;
	c->reach = (struct strait_rdma_reach){ .size = sizeof(c->reach) };
	if (!c->staged)
		return rc;
	/* Why, for the result. */
	rc = strait_rdma_info(c->session, &session);
	nic = session.nic;
	if (!rc)
		rc = strait_rdma_probe(nic, j->f.region, &c->reach);
	if (!rc)
		rc = stage_alloc(c);
	if (!rc)
		rc = strait_rdma_offer(c->session, c->stage, 0, WINDOW_BYTES * WINDOWS, rights, STRAIT_FOREVER,
				       &c->offer);
	return rc;
}

/* The server has an offer of the region in slot 0, or of the stage. */
static int offer_region(struct job *j)
{
	uint32_t rights = j->push ? STRAIT_RDMA_PEER_READS : STRAIT_RDMA_PEER_WRITES;
	struct strait_rdma_client *c = j->c;
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	struct proto_request q = { .op = PROTO_OFFER };
	struct proto_reply r;
	int rc;

	if (c->offer && c->region == j->f.region && c->rights == rights)
		return 0;
	strait_rdma_offer_close(c->offer);
	c->offer = NULL;
	rc = make_offer(j, rights);
	if (!rc)
		rc = strait_rdma_offer_text(c->offer, q.offer, &reach);
	if (!rc)
		rc = client_call(c, &q, j->timeout_ns, &r);
	if (rc)
		return rc;
	j->res->registrations++;
	if (!c->staged)
		c->reach = reach;
	c->region = j->f.region;
	c->rights = rights;
	return 0;
}

struct window {
	uint64_t at, length; /* in the transfer */
	uint32_t id;
	unsigned int place; /* of the stage */
};

static int send_window(struct job *j, struct window *w)
{
	struct strait_rdma_client *c = j->c;
	struct proto_request q = { .op = j->push ? PROTO_WRITE : PROTO_READ,
				   .file_offset = j->f.file_offset + w->at,
				   .offer_offset = c->staged ? w->place * WINDOW_BYTES : j->f.region_offset + w->at,
				   .length = w->length };
	int rc = 0;

	if (c->staged && j->push)
		rc = strait_region_copy_out(j->f.region, j->f.region_offset + w->at,
					    (char *)c->stage_cpu + w->place * WINDOW_BYTES, w->length);
	if (!rc)
		rc = client_send(c, &q, j->timeout_ns);
	w->id = q.id;
	return rc;
}

static int finish_window(struct job *j, const struct window *w)
{
	struct strait_rdma_client *c = j->c;
	struct proto_reply r;
	int rc = client_reply(c, w->id, j->timeout_ns, &r);

	if (rc)
		return rc;
	if (r.bytes > w->length)
		return -EPROTO;
	if (c->staged && !j->push && r.bytes)
		rc = strait_region_copy_in(j->f.region, j->f.region_offset + w->at,
					   (char *)c->stage_cpu + w->place * WINDOW_BYTES, r.bytes);
	if (rc)
		return rc;
	j->acked = w->at + r.bytes;
	if (c->staged)
		j->res->bytes_staged += r.bytes;
	else
		j->res->bytes_direct += r.bytes;
	if (r.status)
		return r.status;
	return r.bytes == w->length ? 0 : -EPROTO;
}

static int move_windows(struct job *j)
{
	struct window w[WINDOWS];
	uint64_t next = j->acked;
	unsigned int first = 0, n = 0;
	int rc = 0;

	while (!rc && j->acked < j->f.length) {
		while (!rc && n < WINDOWS && next < j->f.length) {
			unsigned int i = (first + n) % WINDOWS;

			w[i] = (struct window){ .at = next,
						.length = min_u64(WINDOW_BYTES, j->f.length - next),
						.place = i };
			rc = send_window(j, &w[i]);
			next += w[i].length;
			n++;
		}
		if (!rc)
			rc = finish_window(j, &w[first]);
		first = (first + 1) % WINDOWS;
		n--;
	}
	/* Replies that are still to come, or requests that the server still runs, belong to no later call. */
	if (rc)
		client_disconnect(j->c);
	return rc;
}

static int finish(struct job *j)
{
	struct proto_request sync = { .op = PROTO_SYNC };
	struct proto_reply r;

	return j->push ? client_call(j->c, &sync, j->timeout_ns, &r) : strait_rdma_offer_flush(j->c->offer);
}

static int attempt(struct job *j)
{
	struct strait_rdma_info info = { .size = sizeof(info) };
	int rc = client_connect(j->c);

	if (!rc)
		rc = open_file(j);
	if (!rc)
		rc = offer_region(j);
	if (!rc) {
		j->res->kind = j->c->reach.kind;
		str_copy(j->res->reason, sizeof(j->res->reason), j->c->reach.reason);
		rc = move_windows(j);
	}
	if (!rc)
		rc = finish(j);
	if (rc && j->c->session && !strait_rdma_info(j->c->session, &info) && info.status)
		j->res->status = info.status;
	return rc;
}

static int check(const struct strait_rdma_file *f)
{
	if (!f->path || !*f->path)
		return -ENOENT;
	if (!f->region || !f->length || f->reserved || !range_fits_off_t(f->file_offset, f->length))
		return -EINVAL;
	return strlen(f->path) > PROTO_PATH ? -ENAMETOOLONG : 0;
}

static int run_locked(struct job *j)
{
	struct timespec pause = { .tv_nsec = 100000000 };
	uint32_t left = j->f.retries;

	for (;;) {
		int rc = attempt(j);

		if (!is_lost(rc) || !left--)
			return rc;
		client_disconnect(j->c);
		/* A server that is started again needs a moment, a link that comes up too. */
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 800000000)
			pause.tv_nsec *= 2;
		j->res->reconnects++;
	}
}

static int run(struct strait_rdma_client *c, const struct strait_rdma_file *user, struct strait_rdma_result *result,
	       bool push)
{
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct job j = { .c = c, .push = push, .res = &res, .f.size = sizeof(j.f) };
	int rc, out;

	if (!c || !user || !result || !struct_room(result, STRAIT_RDMA_RESULT_SIZE_V1))
		return -EINVAL;
	rc = struct_in(&j.f, sizeof(j.f), user, STRAIT_RDMA_FILE_SIZE_V1);
	if (!rc)
		rc = check(&j.f);
	if (!rc) {
		j.timeout_ns = (int64_t)(j.f.timeout_ns && j.f.timeout_ns < INT64_MAX ? j.f.timeout_ns : DEFAULT_NS);
		pthread_mutex_lock(&c->lock);
		rc = run_locked(&j);
		res.bytes = j.acked;
		pthread_mutex_unlock(&c->lock);
	}
	out = struct_out(result, &res, sizeof(res), STRAIT_RDMA_RESULT_SIZE_V1);
	return rc ? rc : out;
}

STRAIT_API int strait_rdma_pull(struct strait_rdma_client *c, const struct strait_rdma_file *file,
				struct strait_rdma_result *result)
{
	return run(c, file, result, false);
}

STRAIT_API int strait_rdma_push(struct strait_rdma_client *c, const struct strait_rdma_file *file,
				struct strait_rdma_result *result)
{
	return run(c, file, result, true);
}
