/* SPDX-License-Identifier: MIT */
/* What is refused: peers without a key that are not this machine, and memory past the limit of locked memory. */
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "endpoint/rdma/session.h"
#include "rdma.h"

#define SECOND 1000000000ll

static __typeof__(verbs.ibv_query_qp) real_query;
static _Thread_local bool is_elsewhere; /* the peer of this thread's session */

/* As of a peer that says in its request that it has an address of this machine, and has not. */
static int query_elsewhere(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
{
	static const uint8_t other[16] = { [10] = 0xff, [11] = 0xff, 10, 99, 0, 1 };
	int rc = real_query(qp, attr, mask, init);

	if (is_elsewhere && mask & IBV_QP_AV)
		memcpy(&attr->ah_attr.grh.dgid, other, sizeof(other));
	return rc;
}

struct listening {
	struct strait_rdma_listener *l;
	struct strait_rdma_session *s;
	bool elsewhere;
	int rc;
};

static void *answer(void *arg)
{
	struct listening *v = arg;

	is_elsewhere = v->elsewhere;
	ASSERT_OK(strait_rdma_accept(v->l, 20 * SECOND * test_slow(), &v->s));
	v->rc = strait_rdma_authenticate(v->s);
	return NULL;
}

static void connect_without_key(bool server_sees, bool client_sees, int *server, int *client)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_context *ctx = context_new(NULL);
	struct listening v = { .elsewhere = server_sees };
	struct strait_rdma_session *s;
	pthread_t thread;

	l.key = c.key = NULL;
	l.key_len = c.key_len = 0;
	l.timeout_ns = c.timeout_ns = (uint64_t)(5 * SECOND * test_slow());
	ASSERT_OK(strait_rdma_listen(ctx, &l, &v.l));
	if (!real_query) {
		real_query = verbs.ibv_query_qp;
		verbs.ibv_query_qp = query_elsewhere;
	}
	ASSERT_EQ(pthread_create(&thread, NULL, answer, &v), 0);
	is_elsewhere = client_sees;
	*client = strait_rdma_connect(ctx, &c, &s);
	pthread_join(thread, NULL);
	*server = v.rc;
	strait_rdma_close(v.s);
	if (!*client)
		strait_rdma_close(s);
	strait_rdma_listener_close(v.l);
	strait_context_close(ctx);
}

TEST_TIMEOUT(without_a_key_answers_go_to_this_machine_only, 120)
{
	int server, client;

	connect_without_key(false, false, &server, &client);
	ASSERT_EQ(client, 0);
	ASSERT_EQ(server, 0);
	connect_without_key(true, false, &server, &client);
	ASSERT_EQ(server, -EACCES);
	ASSERT_LT(client, 0);
	connect_without_key(false, true, &server, &client);
	ASSERT_EQ(client, -EACCES);
	ASSERT_LT(server, 0);
}

/* Needs no RDMA device. */
TEST(own_addresses_are_known)
{
	union ibv_gid own = { .raw = { [10] = 0xff, [11] = 0xff, 127, 0, 0, 1 } };
	union ibv_gid v6 = { .raw = { [15] = 1 } };
	union ibv_gid other = { .raw = { [10] = 0xff, [11] = 0xff, 203, 0, 113, 7 } };
	union ibv_gid none = { .raw = { 0 } };

	ASSERT_TRUE(address_gid_is_own(&own));
	ASSERT_TRUE(address_gid_is_own(&v6) || access("/proc/net/if_inet6", F_OK));
	ASSERT_FALSE(address_gid_is_own(&other));
	ASSERT_FALSE(address_gid_is_own(&none));
}

static void drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	ASSERT_OK((int)syscall(SYS_capget, &head, data));
	data[CAP_IPC_LOCK / 32].effective &= ~(1u << CAP_IPC_LOCK % 32);
	ASSERT_OK((int)syscall(SYS_capset, &head, data));
}

/* The error is its own, and the reason says what to raise and by how much. */
TEST(memory_past_the_limit_of_locked_memory_is_refused)
{
	struct rlimit limit = { .rlim_cur = MIB(4), .rlim_max = MIB(4) };
	struct strait_rdma_reach reach = { .size = sizeof(reach) };
	struct strait_rdma_info info = { .size = sizeof(info) };
	struct strait_rdma_result res = { .size = sizeof(res) };
	struct strait_rdma_file f = { .size = sizeof(f), .path = "data", .length = 4096 };
	struct strait_rdma_server *server;
	struct strait_rdma_client *client;
	struct strait_rdma_offer *offer;
	struct strait_region *small;
	struct rdma_pair p;

	/* First: the kernel's RDMA files are of no use to a process whose capabilities have changed. */
	drop_ipc_lock();
	rdma_pair_open(&p);
	ASSERT_OK(strait_rdma_info(p.offers, &info));
	f.region = rdma_memory(p.ctx, MIB(8), 0);
	small = rdma_memory(p.ctx, 65536, 0);
	ASSERT_OK(setrlimit(RLIMIT_MEMLOCK, &limit));
	ASSERT_EQ(strait_rdma_offer(p.offers, f.region, 0, MIB(8), STRAIT_RDMA_PEER_READS, STRAIT_FOREVER, &offer),
		  -ENOMEM);
	ASSERT_OK(strait_rdma_probe(info.nic, f.region, &reach));
	printf("%s\n", reach.reason);
	ASSERT_EQ(reach.kind, STRAIT_RDMA_NONE);
	ASSERT_TRUE(strstr(reach.reason, "\"ulimit -l\" is 4096, registering needs 8192 more (KiB)") != NULL);
	/* Less memory is fine. */
	ASSERT_OK(strait_rdma_offer(p.offers, small, 0, 65536, STRAIT_RDMA_PEER_READS, STRAIT_FOREVER, &offer));
	strait_rdma_offer_close(offer);
	rdma_pair_close(&(struct rdma_pair){ .offers = p.offers, .initiates = p.initiates, .listener = p.listener });

	make_file("data", 4096, 5);
	server = rdma_serve_dir(p.ctx, test_dir(), 0, 0);
	client = rdma_client_new(p.ctx);
	ASSERT_EQ(strait_rdma_pull(client, &f, &res), -ENOMEM);
	ASSERT_TRUE(strstr(res.reason, "ulimit -l") != NULL);
	strait_rdma_client_close(client);
	strait_rdma_server_close(server);
	strait_region_close(small);
	strait_region_close(f.region);
	strait_context_close(p.ctx);
}
