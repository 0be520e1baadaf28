/* SPDX-License-Identifier: MIT */
/* The life of a session. */
#include "endpoint/rdma/session.h"

#include <stdlib.h>

#include "base/lock.h"
#include "base/util.h"
#include "endpoint/rdma/mac.h"
#include "os/os.h"

#define DEFAULT_TIMEOUT_NS 10000000000ull
#define DEFAULT_ACK_TIMEOUT 18u
#define DEFAULT_DEPTH 256u
#define DEFAULT_HALF_OPEN 16u
#define GIDS 256 /* entries of a port's table that are looked at */

int rdma_opts_copy(const struct strait_rdma_opts *from, struct strait_rdma_opts *o, uint8_t key[HS_KEY_MAX])
{
	*o = *from;
	if (o->flags & ~STRAIT_RDMA_POLL || o->ack_timeout > 31 || o->port > UINT16_MAX || o->half_open > 1024 ||
	    o->queue_pairs > STRAIT_RDMA_QUEUE_PAIRS_MAX || o->reserved ||
	    (o->depth && (o->depth < 2 * SIGNAL_EVERY || o->depth > 4096)) ||
	    (o->role != STRAIT_RDMA_OFFERS && o->role != STRAIT_RDMA_INITIATES))
		return -EINVAL;
	if (o->key ? o->key_len < STRAIT_RDMA_KEY_MIN || o->key_len > STRAIT_RDMA_KEY_MAX : o->key_len)
		return -EINVAL;
	if (o->key_len)
		memcpy(key, o->key, o->key_len);
	o->key = o->key_len ? key : NULL;
	o->address = NULL;
	o->port = o->port ? o->port : STRAIT_RDMA_PORT;
	o->timeout_ns = o->timeout_ns ? o->timeout_ns : DEFAULT_TIMEOUT_NS;
	o->ack_timeout = o->ack_timeout ? o->ack_timeout : DEFAULT_ACK_TIMEOUT;
	o->depth = o->depth ? o->depth : DEFAULT_DEPTH;
	o->queue_pairs = o->queue_pairs ? o->queue_pairs : 1;
	o->half_open = o->half_open ? o->half_open : DEFAULT_HALF_OPEN;
	return 0;
}

int session_new(struct device_set *set, const struct strait_rdma_opts *opts, struct strait_rdma_session **ret)
{
	struct strait_rdma_session *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	rc = rdma_opts_copy(opts, &s->opts, s->key_copy);
	if (rc)
		goto free_session;
	s->events = verbs.rdma_create_event_channel();
	if (!s->events) {
		rc = -errno;
		goto free_session;
	}
	rc = os_set_nonblocking(s->events->fd);
	if (!rc)
		rc = os_event_fd(&s->wake);
	if (rc)
		goto destroy_channel;
	s->set = set;
	s->log = set->log;
	atomic_init(&s->refs, 1);
	pthread_mutex_init(&s->lock, NULL);
	cond_init_monotonic(&s->changed);
	list_init(&s->regs);
	list_init(&s->offers);
	s->watcher.drop_mappings = session_drop;
	device_set_watch(set, &s->watcher);
	*ret = s;
	return 0;
destroy_channel:
	verbs.rdma_destroy_event_channel(s->events);
free_session:
	free(s);
	return rc;
}

void session_unref(struct strait_rdma_session *s)
{
	if (atomic_fetch_sub(&s->refs, 1) != 1)
		return;
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void session_lock(struct strait_rdma_session *s)
{
	atomic_fetch_add(&s->lock_wanted, 1);
	pthread_mutex_lock(&s->lock);
	atomic_fetch_sub(&s->lock_wanted, 1);
}

int session_enter(struct strait_rdma_session *s)
{
	session_lock(s);
	if (s->closing) {
		pthread_mutex_unlock(&s->lock);
		return -ECANCELED;
	}
	s->users++;
	return 0;
}

void session_leave(struct strait_rdma_session *s)
{
	s->users--;
	if (s->closing)
		pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

/* A peer whose session is over must not access memory, whatever the application does next. */
void session_fail(struct strait_rdma_session *s, int err)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (atomic_load(&s->error))
		return;
	atomic_store(&s->error, err);
	for (uint32_t i = 0; i < s->lanes; i++)
		verbs.ibv_modify_qp(s->lane[i].qp, &attr, IBV_QP_STATE);
	os_event_signal(s->wake);
	pthread_cond_broadcast(&s->changed);
}

int session_sleep(struct strait_rdma_session *s, int fd, uint64_t deadline)
{
	int fds[] = { s->wake, s->events->fd, fd }, rc;

	pthread_mutex_unlock(&s->lock);
	rc = os_wait_any(fds, fd < 0 ? 2 : 3, os_time_left(deadline));
	session_lock(s);
	return rc;
}

static void no_longer_half_open(struct strait_rdma_session *s)
{
	if (!s->listener)
		return;
	atomic_fetch_sub(&s->listener->half_open, 1);
	listener_unref(s->listener);
	s->listener = NULL;
}

/* The queue pair stops first: nothing accesses memory any more when it is deregistered. */
void session_close(struct strait_rdma_session *s)
{
	session_lock(s);
	s->closing = true;
	session_fail(s, -ECANCELED);
	while (s->users)
		pthread_cond_wait(&s->changed, &s->lock);
	pthread_mutex_unlock(&s->lock);
	device_set_unwatch(s->set, &s->watcher);
	if (s->established)
		verbs.rdma_disconnect(s->id);
	else if (s->state == SESSION_NEW && s->id)
		verbs.rdma_reject(s->id, NULL, 0);
	session_lock(s);
	reg_close_all(s);
	pthread_mutex_unlock(&s->lock);
	qp_close(s);
	if (s->id)
		verbs.rdma_destroy_id(s->id);
	verbs.rdma_destroy_event_channel(s->events);
	os_close(s->wake);
	no_longer_half_open(s);
	explicit_bzero(s->key_copy, sizeof(s->key_copy));
	explicit_bzero(s->offer_key, sizeof(s->offer_key));
	explicit_bzero(&s->send, sizeof(s->send));
	explicit_bzero(&s->recv, sizeof(s->recv));
	session_unref(s);
}

/*
 * Without a key the peer must be this machine. Its address in the connection request is what the peer says; the
 * destination of the queue pair is where all answers go, so a peer elsewhere that claims another one receives none.
 */
static bool is_own_machine(struct strait_rdma_session *s, const struct ibv_ah_attr *to)
{
	static const union ibv_gid none;
	union ibv_gid gid;

	if (!address_is_own(rdma_get_peer_addr(s->id)))
		return false;
	/* A connection of iWARP is one of TCP: the address is the one that answers go to. */
	if (s->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		return true;
	/* Unused entries of the table are 0. */
	if (!to->is_global || !memcmp(&to->grh.dgid, &none, sizeof(none)))
		return false;
	if (address_gid_is_own(&to->grh.dgid))
		return true;
	for (int i = 0; i < GIDS && !verbs.ibv_query_gid(s->id->verbs, s->id->port_num, i, &gid); i++)
		if (!memcmp(&gid, &to->grh.dgid, sizeof(gid)))
			return true;
	return false;
}

static int begin_handshake(struct strait_rdma_session *s, struct handshake *hs)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct hs_view view;
	uint8_t nonce[HS_NONCE];
	int rc = os_random(nonce, sizeof(nonce));

	if (!rc)
		rc = -verbs.ibv_query_qp(s->lane[0].qp, &attr, IBV_QP_DEST_QPN | IBV_QP_AV, &init);
	if (rc)
		return rc;
	if (!s->opts.key && !is_own_machine(s, &attr.ah_attr)) {
		log_error(s->log, "rdma: a peer without a key is refused: its answers would go to another machine");
		return -EACCES;
	}
	address_encode(rdma_get_local_addr(s->id), view.local);
	address_encode(rdma_get_peer_addr(s->id), view.peer);
	view.local_qp = s->lane[0].qp->qp_num;
	view.peer_qp = attr.dest_qp_num;
	return hs_init(hs, mac_hmac, s->listener != NULL, s->opts.role, s->opts.key, s->opts.key_len, &view, nonce);
}

static int run_handshake(struct strait_rdma_session *s, struct handshake *hs, uint64_t deadline)
{
	uint8_t out[WIRE_MAX];
	const uint8_t *msg;
	size_t len, out_len;
	int rc = 0, sent;

	if (!s->listener) {
		rc = hs_begin(hs, out);
		if (rc > 0)
			rc = qp_send(s, out, (size_t)rc, deadline);
	}
	while (!rc && hs->state != HS_DONE) {
		rc = qp_recv(s, deadline, &msg, &len);
		if (rc)
			return rc;
		rc = hs_input(hs, msg, len, out, &out_len);
		sent = out_len ? qp_send(s, out, out_len, deadline) : 0;
		/* The peer learns that it was refused before it is disconnected. */
		if (rc && !sent && out_len)
			qp_flush_sends(s, deadline);
		if (!rc)
			rc = sent;
		if (!rc)
			rc = qp_release(s);
	}
	if (rc == -ECONNREFUSED && hs->refused)
		rc = hs->refused;
	return rc;
}

int session_authenticate(struct strait_rdma_session *s, uint64_t deadline)
{
	struct handshake hs;
	int rc = begin_handshake(s, &hs);

	if (!rc)
		rc = run_handshake(s, &hs, deadline);
	if (!rc) {
		s->send = hs.send;
		s->recv = hs.recv;
		rc = lanes_open(s, deadline);
	}
	if (!rc) {
		memcpy(s->session, hs.session, sizeof(s->session));
		memcpy(s->offer_key, hs.offer_key, sizeof(s->offer_key));
		s->began = os_now_ns();
		s->state = SESSION_READY;
	} else {
		session_fail(s, rc);
	}
	hs_clear(&hs);
	no_longer_half_open(s);
	return rc;
}

void session_info(struct strait_rdma_session *s, struct strait_rdma_info *info)
{
	*info = (struct strait_rdma_info){ .size = sizeof(*info) };
	if (s->id && s->id->verbs)
		str_copy(info->nic, sizeof(info->nic), verbs.ibv_get_device_name(s->id->verbs->device));
	if (s->id) {
		address_text(rdma_get_local_addr(s->id), info->local, sizeof(info->local));
		address_text(rdma_get_peer_addr(s->id), info->peer, sizeof(info->peer));
	}
	info->requests = s->requests;
	info->signalled = s->signalled;
	info->registrations = atomic_load(&s->registrations);
	info->bytes_written = s->bytes_written;
	info->bytes_read = s->bytes_read;
	info->status = atomic_load(&s->status);
	info->error = atomic_load(&s->error);
	info->queue_pairs = s->lanes;
}
