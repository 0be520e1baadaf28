/* SPDX-License-Identifier: MIT */
/* Memory of peer clients, mapped for a device in user space: the engine "edu", and a drive. */
#include "peer.h"

#include "nvme.h"

#define LEN KIB(512)
#define SEED 31

static const struct peer_kind kinds[] = { PEER_KINDS };

TEST_VARIANTS(listed, struct peer_kind, kinds)
{
	char text[256], want[64];

	peer_load(v);
	snprintf(want, sizeof(want), "strait_vgpu 1.0 %s 0 0", v->name);
	ASSERT_OK(read_text("/sys/module/strait_peer/parameters/clients", text, sizeof(text)));
	ASSERT_STREQ(text, want);
	ASSERT_OK(peer_unload());
	/* strait_peer stays, without clients. */
	ASSERT_OK(read_text("/sys/module/strait_peer/parameters/clients", text, sizeof(text)));
	ASSERT_STREQ(text, "");
	peer_load(&kinds[0]);
}

/* One range for each place where the client's pages of 64 KiB and the range differ. */
static const struct range {
	const char *name;
	uint64_t off, len;
} ranges[] = {
	{ "all", 0, LEN },
	{ "first-page", 0, KIB(4) },
	{ "last-page", LEN - KIB(4), KIB(4) },
	{ "inside-one", KIB(68), KIB(8) },
	{ "across", KIB(60), KIB(72) },
};

/* The engine writes the first and the last bytes of each range; nothing else changes. */
static void write_ends(struct raw *e, struct gpu_mem *m, uint32_t region, const struct range *r)
{
	uint64_t last = r->off + r->len - EDU_MOST;
	struct strait_ioc_map map;
	struct strait_ioc_runs req;
	struct strait_run runs[32];

	memset(m->p, 0, LEN);
	ASSERT_OK(raw_map(e->ko, region, r->off, r->len, &map));
	ASSERT_EQ(peer_contexts(), 1);
	ASSERT_EQ(map.where, STRAIT_WHERE_DEVICE);
	ASSERT_EQ(map.access, STRAIT_MAP_READ | STRAIT_MAP_WRITE);
	req = (struct strait_ioc_runs){
		.size = sizeof(req), .handle = map.handle, .count = ARRAY_SIZE(runs), .runs = (uintptr_t)runs
	};
	ASSERT_OK(ko_call(e->ko, STRAIT_IOC_RUNS, &req));
	ASSERT_EQ(req.count, map.runs);
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	raw_wait(e);
	raw_load(e, SEED + 1);
	raw_start(e, runs[map.runs - 1].bus + runs[map.runs - 1].length - EDU_MOST, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(m->p + r->off, EDU_MOST, SEED));
	ASSERT_TRUE(filled(m->p + last, EDU_MOST, SEED + 1));
	ASSERT_TRUE(all_zero(m->p, r->off));
	ASSERT_TRUE(all_zero(m->p + r->off + EDU_MOST, last - r->off - EDU_MOST));
	ASSERT_TRUE(all_zero(m->p + r->off + r->len, LEN - r->off - r->len));
	expect_outside(m, 0, LEN);
	ASSERT_OK(raw_mapping(e->ko, STRAIT_IOC_UNMAP, map.handle));
	peer_expect_released();
}

TEST_VARIANTS_TIMEOUT(engine_writes, struct peer_kind, kinds, 300)
{
	int gpu = gpu_open();
	struct gpu_mem m;
	struct raw e;
	uint32_t region;

	peer_load(v);
	m = gpu_alloc(gpu, PLAIN, LEN);
	e = raw_open();
	region = peer_import(e.ko, m.p, LEN);
	/* The region itself pins nothing. */
	ASSERT_EQ(peer_contexts(), 0);
	ASSERT_EQ(ko_counter("device_bytes"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++)
		write_ends(&e, &m, region, &ranges[i]);
	ASSERT_EQ(peer_invalidations(), 0);
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
	ASSERT_OK(gpu_free(&m));
}

static int map_in_child(void *arg)
{
	struct strait_ioc_map map;
	const uint32_t *job = arg;

	return -raw_map((int)job[0], job[1], 0, KIB(64), &map);
}

/* The client looks up addresses in the calling process: a process that inherited the file has no right to them. */
TEST(other_process_is_refused)
{
	int gpu = gpu_open();
	struct gpu_mem m;
	struct raw e;
	uint32_t job[2];

	peer_load(&kinds[0]);
	m = gpu_alloc(gpu, PLAIN, LEN);
	e = raw_open();
	job[0] = (uint32_t)e.ko;
	job[1] = peer_import(e.ko, m.p, LEN);
	ASSERT_EQ(WEXITSTATUS(wait_for(start(map_in_child, job))), EACCES);
	ASSERT_EQ(peer_contexts(), 0);
	raw_close(&e);
}

TEST(memory_of_no_client)
{
	struct strait_ioc_import import;
	struct strait_ioc_map map;
	int gpu = gpu_open();
	struct gpu_mem m;
	struct raw e;
	uint32_t region;
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	peer_load(&kinds[0]);
	m = gpu_alloc(gpu, PLAIN, LEN);
	e = raw_open();
	ASSERT_TRUE(p != MAP_FAILED);
	ASSERT_EQ(ko_try_import(e.ko, STRAIT_IMPORT_PEER, p, LEN, &import), -EFAULT);
	/* Not in one piece: the client has only a part of it. */
	ASSERT_EQ(ko_try_import(e.ko, STRAIT_IMPORT_PEER, m.p, LEN + KIB(64), &import), -EFAULT);
	ASSERT_EQ(ko_try_import(e.ko, STRAIT_IMPORT_PEER, m.p + 512, KIB(4), &import), -EINVAL);
	/* It was the client's when it was imported, and is not when it is mapped. */
	region = peer_import(e.ko, m.p, LEN);
	ASSERT_OK(gpu_free(&m));
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN, &map), -EFAULT);
	ASSERT_OK(peer_unload());
	ASSERT_EQ(raw_map(e.ko, region, 0, LEN, &map), -ENODEV);
	ASSERT_EQ(ko_try_import(e.ko, STRAIT_IMPORT_PEER, m.p, LEN, &import), -EFAULT);
	raw_close(&e);
	peer_load(&kinds[0]);
}

/* Every allocation of importing, mapping and exporting fails once, without a leak. */
static const struct failing {
	const char *name; /* the module */
} failing[] = { { "strait" }, { "strait_peer" } };

TEST_VARIANTS(each_allocation_fails, struct failing, failing)
{
	int gpu = gpu_open(), tries;
	struct gpu_mem m;
	struct raw e;

	peer_load(&kinds[0]);
	m = gpu_alloc(gpu, PLAIN, LEN);
	e = raw_open();
	for (tries = 1; tries < 40; tries++) {
		struct strait_ioc_export export = { .size = sizeof(export), .length = LEN };
		struct strait_ioc_import import;
		struct strait_ioc_map map;
		bool left;
		int rc;

		inject_nth(v->name, (unsigned int)tries);
		rc = ko_try_import(e.ko, STRAIT_IMPORT_PEER, m.p, LEN, &import);
		if (!rc) {
			export.handle = import.handle;
			rc = raw_map(e.ko, import.handle, 0, LEN, &map);
			if (!rc) {
				rc = ko_call(e.ko, STRAIT_IOC_EXPORT, &export);
				ASSERT_OK(raw_mapping(e.ko, STRAIT_IOC_UNMAP, map.handle));
			}
			if (!rc)
				close(export.fd);
			ASSERT_OK(ko_release(e.ko, import.handle));
		}
		left = inject_left(v->name);
		inject_nth(v->name, 0);
		if (rc)
			ASSERT_EQ(rc, -ENOMEM);
		peer_expect_released();
		if (left) {
			ASSERT_OK(rc);
			break;
		}
	}
	ASSERT_GE(tries, 5);
	ASSERT_LT(tries, 40);
	raw_close(&e);
	ko_expect_counter("device_bytes", 0);
	ASSERT_EQ(gpu_counters(gpu).peer_mapped_now, 0);
	ASSERT_OK(gpu_free(&m));
}

static const struct nvme_setup setup = { "strait", "strait", "host", false, false };

/* A drive in user space reads into memory that the library knows only by its address, and writes it back. */
TEST_VARIANTS_TIMEOUT(drive_transfers, struct peer_kind, kinds, 300)
{
	int gpu = gpu_open();
	struct strait_region *r;
	struct gpu_mem m;
	struct drive d;
	unsigned char *want = malloc(LEN);

	ASSERT_TRUE(want);
	peer_load(v);
	m = gpu_alloc(gpu, PLAIN, LEN);
	drive_open(&d, &setup, 0);
	ASSERT_OK(strait_region_import(d.ctx, d.dev, m.p, LEN, &r));
	file_pattern(want, 0, LEN, SEED);
	for (uint32_t op = STRAIT_WRITE;; op = STRAIT_READ) {
		struct strait_transfer t = { .op = op,
					     .routes = STRAIT_ROUTE_MASK(STRAIT_ROUTE_HOST),
					     .endpoint = d.ep,
					     .region = r,
					     .length = LEN };
		struct strait_result res;

		if (op == STRAIT_WRITE)
			memcpy(m.p, want, LEN);
		else
			memset(m.p, 0, LEN);
		strait_transfer_run(&t, 60000000000, &res);
		ASSERT_EQ(res.status, 0);
		ASSERT_EQ(res.route_bytes[STRAIT_ROUTE_HOST], LEN);
		if (op == STRAIT_READ)
			break;
		ASSERT_GT(peer_contexts(), 0);
		ASSERT_OK(strait_endpoint_sync(d.ep));
		drive_expect(0, LEN, SEED);
	}
	ASSERT_TRUE(!memcmp(m.p, want, LEN));
	expect_outside(&m, 0, LEN);
	strait_region_close(r);
	drive_close(&d);
	peer_expect_released();
	drive_give_back();
	free(want);
}
