/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <strait/rdma.h>

#include "api/api.h"
#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "endpoint/rdma/nic.h"
#include "endpoint/rdma/probe.h"
#include "endpoint/rdma/session.h"
#include "os/os.h"

STRAIT_API int strait_rdma_missing_reason(char *text, size_t len)
{
	API_CHECK(text && len);
	text[0] = '\0';
	if (verbs_load(text, len) || mac_load(text, len))
		return 0;
	return nic_missing_reason(nic_sysfs, "/lib/modules", text, len);
}

/*
 * Load what sessions need. The RDMA libraries have open devices of their own, which are of no use in a child of the
 * process that first used them.
 */
static int load(const struct log_sink *log)
{
	static atomic_uint user; /* os_fork_generation() + 1 of the first call */
	unsigned int now = os_fork_generation() + 1, first = 0;
	char why[256] = "";
	int rc;

	if (!atomic_compare_exchange_strong(&user, &first, now) && first != now) {
		log_error(log, "rdma: the process was forked after its first use of RDMA");
		return -EOWNERDEAD;
	}
	rc = verbs_load(why, sizeof(why));

	if (!rc)
		rc = mac_load(why, sizeof(why));
	if (rc)
		log_error(log, "rdma: %s", why);
	return rc;
}

STRAIT_API int strait_rdma_probe(const char *nic, struct strait_region *region, struct strait_rdma_reach *reach)
{
	struct strait_rdma_reach r;
	int rc;

	API_CHECK(nic && region && reach && struct_room(reach, STRAIT_RDMA_REACH_SIZE_V1));
	API_ALIVE(device_context(region->dev));
	rc = load(&device_context(region->dev)->log);
	if (!rc)
		rc = rdma_probe(nic, region, &r);
	return rc ? rc : struct_out(reach, &r, sizeof(r), STRAIT_RDMA_REACH_SIZE_V1);
}

static int read_opts(const struct strait_rdma_opts *user, struct strait_rdma_opts *o)
{
	*o = (struct strait_rdma_opts){ .size = sizeof(*o) };
	return struct_in(o, sizeof(*o), user, STRAIT_RDMA_OPTS_SIZE_V1);
}

STRAIT_API int strait_rdma_listen(struct strait_context *ctx, const struct strait_rdma_opts *user,
				  struct strait_rdma_listener **ret)
{
	struct strait_rdma_listener *l;
	struct strait_rdma_opts o;
	int rc;

	API_CHECK(ctx && user && ret);
	API_ALIVE(ctx);
	rc = read_opts(user, &o);
	if (!rc)
		rc = load(&ctx->log);
	if (!rc)
		rc = listener_open(&ctx->set, &o, &l);
	if (rc)
		return rc;
	engine_ref(ctx);
	l->owner = ctx;
	*ret = l;
	return 0;
}

STRAIT_API void strait_rdma_listener_close(struct strait_rdma_listener *l)
{
	struct strait_context *ctx;

	if (!l || engine_alive(l->owner))
		return;
	ctx = l->owner;
	listener_unref(l);
	engine_unref(ctx);
}

STRAIT_API int strait_rdma_accept(struct strait_rdma_listener *l, int64_t timeout_ns, struct strait_rdma_session **ret)
{
	struct strait_rdma_session *s;
	int rc;

	API_CHECK(l && ret && timeout_ns >= 0);
	API_ALIVE(l->owner);
	rc = listener_accept(l, timeout_ns, &s);
	if (rc)
		return rc;
	s->owner = l->owner;
	engine_ref(s->owner);
	*ret = s;
	return 0;
}

/* Connect, then authenticate. A failure is final. */
static int begin(struct strait_rdma_session *s, const char *address)
{
	uint64_t deadline = os_now_ns() + s->opts.timeout_ns;
	int rc = session_connect(s, address, deadline);

	return rc ? rc : session_authenticate(s, deadline);
}

STRAIT_API int strait_rdma_authenticate(struct strait_rdma_session *s)
{
	int rc;

	API_CHECK(s);
	API_ALIVE(s->owner);
	rc = session_enter(s);
	if (rc)
		return rc;
	rc = s->answering || !s->listener ? -EINVAL : atomic_load(&s->error);
	s->answering = true;
	if (!rc)
		rc = begin(s, NULL);
	session_leave(s);
	return rc;
}

STRAIT_API int strait_rdma_connect(struct strait_context *ctx, const struct strait_rdma_opts *user,
				   struct strait_rdma_session **ret)
{
	struct strait_rdma_session *s;
	struct strait_rdma_opts o;
	int rc;

	API_CHECK(ctx && user && ret);
	API_ALIVE(ctx);
	rc = read_opts(user, &o);
	if (!rc && !o.address)
		rc = -EDESTADDRREQ;
	if (!rc)
		rc = load(&ctx->log);
	if (!rc)
		rc = session_new(&ctx->set, &o, &s);
	if (rc)
		return rc;
	session_lock(s);
	rc = begin(s, o.address);
	pthread_mutex_unlock(&s->lock);
	if (rc) {
		session_close(s);
		return rc;
	}
	engine_ref(ctx);
	s->owner = ctx;
	*ret = s;
	return 0;
}

STRAIT_API void strait_rdma_close(struct strait_rdma_session *s)
{
	struct strait_context *ctx;

	if (!s || engine_alive(s->owner))
		return;
	ctx = s->owner;
	session_close(s);
	engine_unref(ctx);
}

STRAIT_API int strait_rdma_info(struct strait_rdma_session *s, struct strait_rdma_info *info)
{
	struct strait_rdma_info i;
	int rc;

	API_CHECK(s && info);
	API_ALIVE(s->owner);
	rc = session_enter(s);
	if (rc)
		return rc;
	session_info(s, &i);
	session_leave(s);
	return struct_out(info, &i, sizeof(i), STRAIT_RDMA_INFO_SIZE_V1);
}

STRAIT_API int strait_rdma_cancel(struct strait_rdma_session *s)
{
	int rc;

	API_CHECK(s);
	API_ALIVE(s->owner);
	rc = session_enter(s);
	if (rc)
		return rc;
	session_fail(s, -ECANCELED);
	session_leave(s);
	return 0;
}

/* Begin a call of a session that is ready. The error of one that is not. */
static int enter_ready(struct strait_rdma_session *s)
{
	int rc = session_enter(s);

	if (rc)
		return rc;
	if (s->state == SESSION_READY)
		return 0;
	rc = atomic_load(&s->error) ? atomic_load(&s->error) : -EINVAL;
	session_leave(s);
	return rc;
}

STRAIT_API int strait_rdma_send(struct strait_rdma_session *s, const void *data, size_t len, int64_t timeout_ns)
{
	int rc;

	API_CHECK(s && (data || !len) && timeout_ns >= 0);
	API_ALIVE(s->owner);
	rc = enter_ready(s);
	if (rc)
		return rc;
	rc = message_send(s, data, len, os_deadline(timeout_ns));
	session_leave(s);
	return rc;
}

STRAIT_API ssize_t strait_rdma_recv(struct strait_rdma_session *s, void *buf, size_t len, int64_t timeout_ns)
{
	ssize_t n;

	API_CHECK(s && buf && timeout_ns >= 0);
	API_ALIVE(s->owner);
	n = enter_ready(s);
	if (n)
		return n;
	n = message_recv(s, buf, len, os_deadline(timeout_ns));
	session_leave(s);
	return n == -ETIMEDOUT && !timeout_ns ? -EAGAIN : n;
}

STRAIT_API int strait_rdma_offer(struct strait_rdma_session *s, struct strait_region *region, uint64_t offset,
				 uint64_t length, uint32_t rights, int64_t lifetime_ns, struct strait_rdma_offer **ret)
{
	struct strait_rdma_offer *o;
	int rc;

	API_CHECK(s && region && ret && length && lifetime_ns > 0);
	API_CHECK(rights && !(rights & ~(STRAIT_RDMA_PEER_READS | STRAIT_RDMA_PEER_WRITES)));
	API_ALIVE(s->owner);
	API_CHECK(device_context(region->dev) == s->owner);
	rc = enter_ready(s);
	if (rc)
		return rc;
	rc = atomic_load(&s->error);
	if (!rc)
		rc = s->opts.role == STRAIT_RDMA_OFFERS ? 0 : -EPERM;
	if (!rc)
		rc = reg_offer(s, region, offset, length, rights, lifetime_ns, &o);
	if (!rc)
		engine_ref(s->owner);
	session_leave(s);
	if (rc)
		return rc;
	*ret = o;
	return 0;
}

STRAIT_API int strait_rdma_offer_text(struct strait_rdma_offer *o, char *text, struct strait_rdma_reach *reach)
{
	API_CHECK(o && text && (!reach || struct_room(reach, STRAIT_RDMA_REACH_SIZE_V1)));
	API_ALIVE(o->owner);
	memcpy(text, o->text, sizeof(o->text));
	return reach ? struct_out(reach, &o->reach, sizeof(o->reach), STRAIT_RDMA_REACH_SIZE_V1) : 0;
}

static int flush_peer_writes(struct strait_device *dev)
{
	int rc = dev->ops->flush_peer_writes(dev);

	/* Memory of such a device has no cache that peers bypass. */
	return rc == -EOPNOTSUPP ? 0 : rc;
}

STRAIT_API int strait_rdma_offer_flush(struct strait_rdma_offer *o)
{
	API_CHECK(o);
	API_ALIVE(o->owner);
	return flush_peer_writes(o->dev);
}

STRAIT_API int strait_rdma_region_flush(struct strait_region *region)
{
	API_CHECK(region);
	API_ALIVE(device_context(region->dev));
	return flush_peer_writes(region->dev);
}

STRAIT_API void strait_rdma_offer_close(struct strait_rdma_offer *o)
{
	struct strait_context *ctx;

	if (!o || engine_alive(o->owner))
		return;
	ctx = o->owner;
	reg_offer_close(o);
	engine_unref(ctx);
}

/* The request names one range of memory, or several, of this context's devices. */
static int check_memory(const struct strait_context *ctx, const struct strait_rdma_request *q)
{
	API_CHECK(!q->pieces == !q->piece_count && !q->reserved && q->piece_count <= STRAIT_RDMA_PIECES_MAX);
	if (!q->pieces) {
		API_CHECK(q->region && device_context(q->region->dev) == ctx);
		return 0;
	}
	API_CHECK(!q->region && !q->region_offset);
	for (uint32_t i = 0; i < q->piece_count; i++)
		API_CHECK(q->pieces[i].region && q->pieces[i].length &&
			  device_context(q->pieces[i].region->dev) == ctx);
	return 0;
}

STRAIT_API int strait_rdma_post(struct strait_rdma_session *s, const struct strait_rdma_request *q, int64_t timeout_ns,
				uint64_t *ticket)
{
	int rc;

	API_CHECK(s && q && ticket && timeout_ns >= 0 && q->offer && q->length && !(q->flags & ~STRAIT_RDMA_AWAITED));
	API_CHECK(q->op == STRAIT_READ || q->op == STRAIT_WRITE);
	API_ALIVE(s->owner);
	rc = check_memory(s->owner, q);
	if (!rc)
		rc = enter_ready(s);
	if (rc)
		return rc;
	rc = s->opts.role == STRAIT_RDMA_INITIATES ? io_post(s, q, os_deadline(timeout_ns), ticket) : -EPERM;
	session_leave(s);
	return rc;
}

STRAIT_API int strait_rdma_wait(struct strait_rdma_session *s, uint64_t ticket, int64_t timeout_ns)
{
	int rc;

	API_CHECK(s && timeout_ns >= 0);
	API_ALIVE(s->owner);
	rc = enter_ready(s);
	if (rc)
		return rc;
	rc = qp_wait(s, ticket, timeout_ns ? os_deadline(timeout_ns) : 0);
	session_leave(s);
	return rc == -ETIMEDOUT && !timeout_ns ? -EAGAIN : rc;
}
