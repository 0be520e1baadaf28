/* SPDX-License-Identifier: MIT */
#include "rdma.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <signal.h>

const char rdma_key[] = "a key for tests of RDMA sessions";

void rdma_missing(char *why, size_t len)
{
	/* The lab has made a device: its tests fail without. */
	if (getenv("LAB_KERNEL") || strait_rdma_missing_reason(why, len))
		*why = 0;
}

const char *rdma_address(void)
{
	static char text[INET_ADDRSTRLEN];
	struct strait_rdma_nic nic = { .size = sizeof(nic) };
	struct ifaddrs *all;
	char why[512];

	if (!strait_rdma_missing_reason(why, sizeof(why))) {
		if (getenv("LAB_KERNEL"))
			FAIL("%s", why);
		SKIP("%s", why);
	}
	ASSERT_OK(getifaddrs(&all));
	for (unsigned int i = 0; !strait_rdma_nic(i, &nic); i++) {
		for (struct ifaddrs *a = all; a && nic.active; a = a->ifa_next) {
			if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || strcmp(a->ifa_name, nic.netdev))
				continue;
			inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, text, sizeof(text));
			freeifaddrs(all);
			return text;
		}
	}
	if (getenv("LAB_KERNEL"))
		FAIL("no RDMA device has an IPv4 address");
	SKIP("no RDMA device has an IPv4 address");
}

struct strait_region *rdma_memory(struct strait_context *ctx, uint64_t len, uint8_t fill)
{
	const char *name = getenv("STRAIT_TEST_DEVICE");
	struct strait_region *region;
	struct strait_device *dev;

	ASSERT_OK(strait_device_find(ctx, name ? name : "emu:0", &dev));
	ASSERT_OK(strait_region_alloc_caps(dev, len, STRAIT_REGION_PINNABLE, &region));
	ASSERT_OK(strait_region_fill(region, 0, fill, len));
	return region;
}

struct strait_rdma_opts rdma_opts_of(uint32_t role)
{
	const char *lanes = getenv("STRAIT_TEST_QUEUE_PAIRS");

	return (struct strait_rdma_opts){ .size = sizeof(struct strait_rdma_opts),
					  .queue_pairs = lanes ? (uint32_t)strtoul(lanes, NULL, 0) : 0,
					  .address = rdma_address(),
					  .role = role,
					  .key = rdma_key,
					  .key_len = sizeof(rdma_key),
					  .timeout_ns = 20000000000ull * test_slow() };
}

struct strait_rdma_server *rdma_serve_dir(struct strait_context *ctx, const char *dir, uint32_t flags,
					  uint32_t sessions)
{
	struct strait_rdma_opts session = rdma_opts_of(STRAIT_RDMA_INITIATES);
	struct strait_rdma_server_opts o = {
		.size = sizeof(o), .session = &session, .root = dir, .flags = flags, .sessions = sessions
	};
	struct strait_rdma_server *server;
	int rc = 0;

	/* A server that was just killed may still have the port. */
	for (unsigned int i = 0; i < 100; i++) {
		rc = strait_rdma_serve(ctx, &o, &server);
		if (rc != -EADDRINUSE)
			break;
		usleep(100000);
	}
	ASSERT_OK(rc);
	return server;
}

struct strait_rdma_client *rdma_client_new(struct strait_context *ctx)
{
	struct strait_rdma_opts o = rdma_opts_of(STRAIT_RDMA_OFFERS);
	struct strait_rdma_client *client;

	ASSERT_OK(strait_rdma_client_open(ctx, &o, &client));
	return client;
}

static void *answer(void *arg)
{
	struct rdma_pair *p = arg;

	ASSERT_OK(strait_rdma_accept(p->listener, 20000000000ll * test_slow(), &p->initiates));
	ASSERT_OK(strait_rdma_authenticate(p->initiates));
	return NULL;
}

void rdma_pair_open_with(struct rdma_pair *p, const struct strait_rdma_opts *initiates,
			 const struct strait_rdma_opts *offers)
{
	pthread_t thread;

	p->ctx = context_new(NULL);
	ASSERT_OK(strait_rdma_listen(p->ctx, initiates, &p->listener));
	ASSERT_EQ(pthread_create(&thread, NULL, answer, p), 0);
	ASSERT_OK(strait_rdma_connect(p->ctx, offers, &p->offers));
	pthread_join(thread, NULL);
}

void rdma_pair_open(struct rdma_pair *p)
{
	struct strait_rdma_opts l = rdma_opts_of(STRAIT_RDMA_INITIATES), c = rdma_opts_of(STRAIT_RDMA_OFFERS);

	rdma_pair_open_with(p, &l, &c);
}

void rdma_pair_close(struct rdma_pair *p)
{
	strait_rdma_close(p->offers);
	strait_rdma_close(p->initiates);
	strait_rdma_listener_close(p->listener);
	strait_context_close(p->ctx);
}

pid_t rdma_child_make(struct rdma_child *c)
{
	char go;

	ASSERT_OK(pipe(c->gate));
	c->pid = fork();
	ASSERT_OK(c->pid);
	if (!c->pid) {
		close(c->gate[1]);
		if (read(c->gate[0], &go, 1) != 1)
			_exit(0);
	}
	return c->pid;
}

void rdma_child_start(struct rdma_child *c)
{
	ASSERT_EQ(write(c->gate[1], "x", 1), 1);
}

void rdma_child_kill(struct rdma_child *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
}
