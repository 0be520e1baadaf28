/* SPDX-License-Identifier: MIT */
/* Pull and push: windows of a file, several in flight, resumed after a lost connection. */
#include <errno.h>
#include <strait/region.h>
#include <string.h>
#include <time.h>

#include "base/util.h"
#include "service/rdma_client.h"

#define DEFAULT_NS 30000000000ull
#define SYNC_BYTES MIB(64)

struct job {
	struct strait_rdma_client *c;
	struct strait_rdma_file f;
	bool push;
	int64_t timeout_ns;
	uint64_t acked;	  /* bytes from the start that the server says are transferred */
	uint64_t settled; /* those that are in device memory, or on the server's storage: resumed from here */
	uint64_t length, inode, mtime; /* of the file when it was first opened */
	bool opened;
	uint32_t slot; /* of the region's offer */
	struct strait_rdma_result *res;
};

/* May a new connection help? */
static bool may_reconnect(const struct strait_rdma_client *c, int err)
{
	if (!c->lost)
		return false;
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
	/* A push changes length and time itself; bytes that it does not write again must be in this very file. */
	if (j->opened && !j->push && (r.length != j->length || r.inode != j->inode || r.mtime != j->mtime))
		return -ESTALE;
	if (j->settled && j->push && (r.inode != j->inode || r.length < j->f.file_offset + j->settled))
		return -ESTALE;
	j->length = r.length;
	j->inode = r.inode;
	j->mtime = r.mtime;
	j->opened = true;
	return 0;
}

/* The server has an offer of the region, or of the stage. */
static int offer_region(struct job *j)
{
	uint32_t rights = j->push ? STRAIT_RDMA_PEER_READS : STRAIT_RDMA_PEER_WRITES;
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	bool made = false;
	int rc = client_offer_get(j->c, j->f.region, rights, j->timeout_ns, &made, &reach, &j->slot);

	j->res->kind = reach.kind;
	str_copy(j->res->reason, sizeof(j->res->reason), reach.reason);
	if (!rc)
		j->res->registrations += made;
	return rc;
}

static const struct client_offer *offer_of(const struct job *j)
{
	return &j->c->offer[j->slot];
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
				   .slot = j->slot,
				   .file_offset = j->f.file_offset + w->at,
				   .offer_offset = offer_of(j)->staged ? w->place * WINDOW_BYTES :
									 j->f.region_offset + w->at,
				   .length = w->length };
	int rc = 0;

	if (offer_of(j)->staged && j->push)
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
	if (r.bytes > w->length || (!r.status && r.bytes != w->length)) {
		c->lost = true;
		return -EPROTO;
	}
	if (offer_of(j)->staged && !j->push && r.bytes)
		rc = strait_region_copy_in(j->f.region, j->f.region_offset + w->at,
					   (char *)c->stage_cpu + w->place * WINDOW_BYTES, r.bytes);
	if (rc)
		return rc;
	j->acked = w->at + r.bytes;
	return r.status;
}

/* Up to @end. The first error is the result; later windows are waited for all the same. */
static int move_windows(struct job *j, uint64_t end)
{
	struct strait_rdma_client *c = j->c;
	struct window w[WINDOWS];
	struct proto_reply unused;
	uint64_t next = j->acked;
	unsigned int first = 0, n = 0;
	int rc = 0;

	while (n || (!rc && next < end)) {
		while (!rc && n < WINDOWS && next < end) {
			unsigned int i = (first + n) % WINDOWS;

			w[i] = (struct window){ .at = next, .length = min_u64(WINDOW_BYTES, end - next), .place = i };
			rc = send_window(j, &w[i]);
			if (rc)
				break;
			next += w[i].length;
			n++;
		}
		if (c->lost || !n)
			return rc;
		if (!rc)
			rc = finish_window(j, &w[first]);
		else if (client_reply(c, w[first].id, j->timeout_ns, &unused))
			return rc;
		first = (first + 1) % WINDOWS;
		n--;
		if (c->lost)
			return rc;
	}
	return rc;
}

/* What was transferred is where it belongs: in device memory, or on the server's storage. */
static int settle(struct job *j)
{
	struct proto_request sync = { .op = PROTO_SYNC };
	struct strait_rdma_client *c = j->c;
	struct proto_reply r;
	uint64_t more = j->acked - j->settled;
	int rc;

	if (!j->push)
		rc = strait_rdma_offer_flush(offer_of(j)->offer);
	else
		rc = c->lost ? -ECONNRESET : client_call(c, &sync, j->timeout_ns, &r);
	if (rc)
		return rc;
	j->settled = j->acked;
	if (offer_of(j)->staged)
		j->res->bytes_staged += more;
	else
		j->res->bytes_direct += more;
	return 0;
}

/* A push is resumed after the last bytes that the server has synced, so that is done now and then. */
static int move(struct job *j)
{
	int rc = 0, settled = 0;

	while (!rc && !settled && j->acked < j->f.length) {
		uint64_t left = j->f.length - j->acked;

		rc = move_windows(j, j->acked + (j->push ? min_u64(left, SYNC_BYTES) : left));
		settled = settle(j);
	}
	return rc ? rc : settled;
}

static int attempt(struct job *j)
{
	struct strait_rdma_client *c = j->c;
	int rc = client_connect(c);

	j->acked = j->settled;
	if (!rc)
		rc = open_file(j);
	if (!rc)
		rc = offer_region(j);
	if (!rc)
		rc = move(j);
	if (c->lost)
		client_disconnect(c);
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

	j->c->status = 0;
	for (;;) {
		int rc = attempt(j);

		/* Nothing was done yet: that the server has ended the session meanwhile costs no retry. */
		if (!j->settled && client_was_stale(j->c, rc)) {
			j->res->reconnects++;
			continue;
		}
		if (!may_reconnect(j->c, rc) || !left--)
			return rc;
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
		res.bytes = j.settled;
		res.status = rc ? c->status : 0;
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
