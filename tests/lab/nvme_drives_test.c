/* SPDX-License-Identifier: MIT */
/* Drives with other properties: limits, block sizes, namespaces; errors, timeouts, removal. */
#include "nvme.h"

#include <pthread.h>

static void show(void *arg, enum strait_log_level level, const char *text)
{
	printf("# %s\n", text);
}

struct odd {
	char name[PCI_NAME];
	struct strait_context *ctx;
	struct strait_nvme *nvme;
	struct strait_device *gpu;
	struct strait_region *r;
	unsigned char *cpu;
};

static void odd_open(struct odd *o, const char *serial, const struct strait_nvme_opts *user)
{
	struct strait_context_opts co = { .size = sizeof(co), .log = show, .log_level = STRAIT_LOG_WARN };
	struct strait_nvme_opts opts = *user;
	struct strait_nvme_info info = { .size = sizeof(info) };

	opts.size = sizeof(opts);
	close(ko_open());
	drive_find(serial, o->name);
	pci_bind(o->name, "strait");
	ASSERT_OK(strait_context_open(&co, &o->ctx));
	if (strait_device_find(o->ctx, "vgpu:0", &o->gpu))
		SKIP("there is no GPU");
	ASSERT_OK(strait_nvme_open(o->ctx, o->name, &opts, &o->nvme));
	ASSERT_OK(strait_nvme_info(o->nvme, &info));
	ASSERT_STREQ(info.serial, serial);
	ASSERT_OK(strait_region_alloc(o->gpu, MIB(4), &o->r));
	o->cpu = drive_cpu(o->r);
}

static void odd_close(struct odd *o)
{
	strait_region_close(o->r);
	strait_nvme_close(o->nvme);
	strait_context_close(o->ctx);
	if (o->name[0] && !access("/sys/bus/pci/drivers/nvme", F_OK)) {
		pci_bind(o->name, "nvme");
		pci_bind(o->name, NULL);
	}
}

/* Pieces at random offsets and of random lengths, in both directions. */
static void exercise(struct odd *o, struct strait_endpoint *ep, uint64_t seed)
{
	unsigned char *want = malloc(MIB(4));
	uint64_t state = seed;

	ASSERT_TRUE(want);
	for (int i = 0; i < (very_slow() ? 8 : 20); i++) {
		uint64_t len = prng_below(&state, i % 4 ? MIB(1) : 9000) + 1, at = prng_below(&state, MIB(40));
		uint64_t off = prng_below(&state, MIB(2));

		if (i & 1) {
			at &= ~4095ull;
			off &= ~4095ull;
		}
		fill(o->cpu + off, len, seed + (uint64_t)i);
		memcpy(want, o->cpu + off, len);
		ASSERT_EQ(strait_write(ep, at, o->r, off, len), len);
		memset(o->cpu, 0, MIB(4));
		ASSERT_EQ(strait_read(ep, at, o->r, off + 4096, len), len);
		ASSERT_MEMEQ(o->cpu + off + 4096, want, len);
	}
	free(want);
}

static const struct kind {
	const char *name;
	uint32_t namespaces, max_transfer, max_queues, lba;
	uint32_t flags;
} kinds[] = {
	{ "mdts0", 1, MIB(1), 64, 512, 0 },
	{ "mdts3", 1, KIB(32), 64, 512, 0 },
	{ "mdts3", 1, KIB(32), 64, 512, STRAIT_NVME_NO_SGL | STRAIT_NVME_NO_SHADOW },
	{ "mdts7", 1, KIB(512), 64, 512, 0 },
	{ "lba4096", 1, KIB(512), 64, 4096, 0 },
	{ "lba4096", 1, KIB(512), 64, 4096, STRAIT_NVME_INTERRUPTS },
	{ "few", 1, KIB(512), 1, 512, 0 },
	{ "few", 1, KIB(512), 1, 512, STRAIT_NVME_INTERRUPTS },
	{ "cmb", 1, KIB(512), 64, 512, 0 },
	{ "two", 2, KIB(512), 64, 512, 0 },
};

TEST_VARIANTS_TIMEOUT(kind, struct kind, kinds, 120)
{
	struct strait_nvme_opts opts = { .flags = v->flags };
	struct strait_nvme_info info = { .size = sizeof(info) };
	struct strait_nvme_namespace ns = { .size = sizeof(ns) };
	struct strait_endpoint *ep;
	struct odd o;

	odd_open(&o, v->name, &opts);
	ASSERT_OK(strait_nvme_info(o.nvme, &info));
	ASSERT_EQ(info.namespaces, v->namespaces);
	ASSERT_EQ(info.max_transfer, v->max_transfer);
	ASSERT_EQ(info.max_queues, v->max_queues);
	for (uint32_t i = 0; i < v->namespaces; i++) {
		ASSERT_OK(strait_nvme_namespace(o.nvme, i, &ns));
		ASSERT_EQ(ns.lba_bytes, i ? 4096 : v->lba);
		ASSERT_OK(strait_nvme_endpoint(o.nvme, ns.nsid, 0, &ep));
		exercise(&o, ep, i + 1);
		if (info.has & STRAIT_NVME_HAS_ZEROES) {
			ASSERT_OK(strait_nvme_write_zeroes(ep, MIB(2), MIB(1)));
			memset(o.cpu, 0xa5, MIB(1));
			ASSERT_EQ(strait_read(ep, MIB(2), o.r, 0, MIB(1)), MIB(1));
			ASSERT_TRUE(all_zero(o.cpu, MIB(1)));
		}
		if (info.has & STRAIT_NVME_HAS_DEALLOCATE)
			ASSERT_OK(strait_nvme_deallocate(ep, MIB(8), MIB(1)));
		ASSERT_OK(strait_endpoint_sync(ep));
		strait_endpoint_close(ep);
	}
	odd_close(&o);
}

/*
 * Block 2048 cannot be read, block 4096 cannot be written: the drive's status comes with the errno, and the drive can
 * still be used.
 */
TEST_TIMEOUT(errors, 120)
{
	struct strait_transfer t = { .op = STRAIT_READ, .length = MIB(2) };
	struct strait_result res;
	struct odd o;

	odd_open(&o, "errors", &(struct strait_nvme_opts){ 0 });
	ASSERT_OK(strait_nvme_endpoint(o.nvme, 1, 0, &t.endpoint));
	t.region = o.r;
	ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &res), -EIO);
	ASSERT_LE(res.bytes, MIB(1));
	ASSERT_NE(res.device_status, 0);
	printf("# read: %s (%#x), %llu bytes before it\n", strait_nvme_status_name((uint32_t)res.device_status),
	       (uint32_t)res.device_status, (unsigned long long)res.bytes);
	t.op = STRAIT_WRITE;
	t.endpoint_offset = 4096 * 512;
	t.length = 4096;
	ASSERT_EQ(strait_transfer_run(&t, STRAIT_FOREVER, &res), -EIO);
	ASSERT_NE(res.device_status, 0);
	printf("# write: %s (%#x)\n", strait_nvme_status_name((uint32_t)res.device_status),
	       (uint32_t)res.device_status);
	/* Other blocks work. */
	t.endpoint_offset = MIB(8);
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	t.op = STRAIT_READ;
	ASSERT_OK(strait_transfer_run(&t, STRAIT_FOREVER, &res));
	strait_endpoint_close(t.endpoint);
	odd_close(&o);
}

/* Four commands per second, with a shorter timeout: aborted, reset, failed; then usable with a longer one. */
TEST_TIMEOUT(takes_too_long, 240)
{
	struct strait_nvme_opts opts = { .timeout_ns = 500000000u, .queues = 1 };
	struct strait_nvme_command cmd[32];
	struct strait_nvme_result res[32];
	struct strait_nvme_info info = { .size = sizeof(info) };
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	unsigned int done = 0, late = 0;
	struct odd o;

	odd_open(&o, "slow", &opts);
	ASSERT_OK(strait_nvme_queue_open(o.nvme, NULL, &q));
	ASSERT_OK(strait_nvme_map(o.nvme, o.r, 0, MIB(1), &map));
	for (unsigned int i = 0; i < 32; i++)
		cmd[i] = (struct strait_nvme_command){
			.opcode = 2, .nsid = 1, .cdw10 = { i * 8, 0, 7 }, .map = map, .offset = i * 4096, .length = 4096
		};
	ASSERT_EQ(strait_nvme_queue_submit(q, cmd, 32), 32);
	while (done < 32) {
		int n = strait_nvme_queue_wait(q, 1, 32, STRAIT_FOREVER, res);

		ASSERT_GE(n, 1);
		for (int i = 0; i < n; i++) {
			ASSERT_TRUE(!res[i].status || res[i].status == -ETIMEDOUT || res[i].status == -EIO);
			late += res[i].status == -ETIMEDOUT;
		}
		done += (unsigned int)n;
	}
	ASSERT_GT(late, 0);
	ASSERT_OK(strait_nvme_info(o.nvme, &info));
	ASSERT_GE(info.resets, 1);
	ASSERT_GE(info.aborts, 1);
	printf("# %u too late, %llu aborted, %llu resets\n", late, (unsigned long long)info.aborts,
	       (unsigned long long)info.resets);
	sleep_ms(3000);
	cmd[0].timeout_ns = 30000000000u;
	ASSERT_EQ(strait_nvme_queue_submit(q, cmd, 1), 1);
	ASSERT_EQ(strait_nvme_queue_wait(q, 1, 1, STRAIT_FOREVER, res), 1);
	ASSERT_EQ(res[0].status, 0);
	strait_nvme_queue_close(q);
	strait_nvme_unmap(map);
	odd_close(&o);
}

static void *remove_it(void *arg)
{
	char path[96];

	sleep_ms(300);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", (const char *)arg);
	return write_text(path, "1") ? arg : NULL;
}

/* Removed during I/O: -ENODEV or an error, never a hang, and the process continues. */
TEST_TIMEOUT(removed, 120)
{
	struct strait_endpoint *ep;
	pthread_t t;
	ssize_t n = 0;
	void *bad;
	struct odd o;

	odd_open(&o, "cmb", &(struct strait_nvme_opts){ .timeout_ns = 2000000000u });
	ASSERT_OK(strait_nvme_endpoint(o.nvme, 1, 0, &ep));
	ASSERT_EQ(pthread_create(&t, NULL, remove_it, o.name), 0);
	for (int i = 0; i < 1000000 && n >= 0; i++)
		n = strait_read(ep, (uint64_t)(i % 32) * MIB(1), o.r, 0, MIB(1));
	ASSERT_LT(n, 0);
	printf("# it ended with %s\n", strerror((int)-n));
	pthread_join(t, &bad);
	ASSERT_FALSE(bad);
	ASSERT_EQ(strait_read(ep, 0, o.r, 0, 4096), -ENODEV);
	strait_endpoint_close(ep);
	strait_region_close(o.r);
	strait_nvme_close(o.nvme);
	strait_context_close(o.ctx);
	ASSERT_OK(write_text("/sys/bus/pci/rescan", "1"));
}

struct other {
	const char *serial;
	int ok;
};

static void *drive_other(void *arg)
{
	struct other *x = arg;
	struct strait_endpoint *ep;
	struct odd o;

	odd_open(&o, x->serial, &(struct strait_nvme_opts){ 0 });
	ASSERT_OK(strait_nvme_endpoint(o.nvme, 1, 0, &ep));
	exercise(&o, ep, 3);
	strait_endpoint_close(ep);
	odd_close(&o);
	x->ok = 1;
	return NULL;
}

/* One process, two drives, one GPU; then two processes. */
TEST_TIMEOUT(two_drives, 240)
{
	struct other x[2] = { { "mdts7", 0 }, { "lba4096", 0 } };
	int status;
	pthread_t t;
	pid_t pid;

	ASSERT_EQ(pthread_create(&t, NULL, drive_other, &x[0]), 0);
	drive_other(&x[1]);
	pthread_join(t, NULL);
	ASSERT_TRUE(x[0].ok && x[1].ok);
	sleep_ms(2000); /* the kernel's driver binds to them again */
	fflush(stdout);
	pid = fork();
	ASSERT_GE(pid, 0);
	if (!pid) {
		drive_other(&x[0]);
		_exit(0);
	}
	drive_other(&x[1]);
	ASSERT_EQ(waitpid(pid, &status, 0), pid);
	ASSERT_EQ(status, 0);
}
