/* SPDX-License-Identifier: MIT */
/* cuFile's calls over route p2p: an unmodified program, with memory of the lab's GPU. */
#include "p2p.h"

#include <cufile.h>

#include <strait/strait.h>

#define P2P STRAIT_ROUTE_P2P
#define SEED 43
#define LEN MIB(4)
#define BATCH 16
#define ASSERT_CU(call) ASSERT_EQ((int)(call).err, CU_FILE_SUCCESS)

static const struct place places[] = PLACES;

struct rig {
	int fd;
	struct gpu_mem m;
	CUfileHandle_t fh;
	unsigned char *want, *have;
	uint64_t read, written; /* of the module, before */
};

static struct rig rig_open(const struct place *place)
{
	CUfileDescr_t d = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	struct rig g = { .want = malloc(LEN), .have = malloc(LEN) };

	close(ko_open_p2p());
	ASSERT_TRUE(g.want && g.have);
	g.fd = place_file(place, LEN, SEED, O_DIRECT);
	file_pattern(g.want, 0, LEN, SEED);
	g.m = gpu_alloc(gpu_open(), PLAIN, LEN);
	ASSERT_CU(cuFileDriverOpen());
	d.handle.fd = g.fd;
	ASSERT_CU(cuFileHandleRegister(&g.fh, &d));
	ASSERT_CU(cuFileBufRegister(g.m.p, g.m.len, 0));
	/* The pair is verified with a block at the first use. */
	ASSERT_EQ(cuFileRead(g.fh, g.m.p, KIB(4), 0, 0), KIB(4));
	g.read = ko_counter("read_bytes");
	g.written = ko_counter("written_bytes");
	fill(g.m.p, LEN, 9);
	return g;
}

static void rig_close(struct rig *g, uint64_t read, uint64_t written)
{
	struct strait_stats stats = { .size = sizeof(stats) };

	ASSERT_EQ(ko_counter("read_bytes") - g->read, read);
	ASSERT_EQ(ko_counter("written_bytes") - g->written, written);
	ASSERT_OK(strait_stats_get(NULL, &stats));
	ASSERT_EQ(stats.route[P2P].read_bytes, read + KIB(4));
	ASSERT_EQ(stats.route[P2P].write_bytes, written);
	ASSERT_CU(cuFileBufDeregister(g->m.p));
	cuFileHandleDeregister(g->fh);
	ASSERT_CU(cuFileDriverClose());
	ko_expect_counter("device_bytes", 0);
	close(g->fd);
	place_unmount();
}

TEST_VARIANTS_TIMEOUT(read_and_write, struct place, places, 120)
{
	struct rig g = rig_open(v);

	ASSERT_EQ(cuFileRead(g.fh, g.m.p, LEN, 0, 0), LEN);
	ASSERT_MEMEQ(g.m.p, g.want, LEN);
	/* From one place in memory to another in the file. */
	ASSERT_EQ(cuFileWrite(g.fh, g.m.p, MIB(1), 0, MIB(3)), MIB(1));
	ASSERT_EQ(cuFileRead(g.fh, g.m.p, MIB(1), 0, MIB(2)), MIB(1));
	ASSERT_MEMEQ(g.m.p + MIB(2), g.want + MIB(3), MIB(1));
	rig_close(&g, LEN + MIB(1), MIB(1));
}

TEST_VARIANTS_TIMEOUT(in_batches, struct place, places, 120)
{
	const size_t each = LEN / BATCH;
	struct rig g = rig_open(v);
	CUfileIOParams_t io[BATCH];
	CUfileIOEvents_t event[BATCH];
	CUfileBatchHandle_t batch;
	unsigned int done = 0, n;

	ASSERT_CU(cuFileBatchIOSetUp(&batch, BATCH));
	for (unsigned int i = 0; i < BATCH; i++) {
		io[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH, .fh = g.fh, .opcode = CUFILE_READ };
		io[i].u.batch.devPtr_base = g.m.p;
		io[i].u.batch.file_offset = (off_t)(i * each);
		io[i].u.batch.devPtr_offset = (off_t)((BATCH - 1 - i) * each);
		io[i].u.batch.size = each;
	}
	ASSERT_CU(cuFileBatchIOSubmit(batch, BATCH, io, 0));
	while (done < BATCH) {
		n = BATCH;
		ASSERT_CU(cuFileBatchIOGetStatus(batch, 1, &n, event, NULL));
		for (unsigned int i = 0; i < n; i++) {
			ASSERT_EQ((int)event[i].status, CUFILE_COMPLETE);
			ASSERT_EQ(event[i].ret, each);
		}
		done += n;
	}
	for (unsigned int i = 0; i < BATCH; i++)
		ASSERT_MEMEQ(g.m.p + (BATCH - 1 - i) * each, g.want + i * each, each);
	cuFileBatchIODestroy(batch);
	rig_close(&g, LEN, 0);
}

/* Unaligned ends use another route, and all bytes are right. */
TEST(not_aligned)
{
	struct rig g = rig_open(&places[1]);
	struct strait_stats stats = { .size = sizeof(stats) };

	ASSERT_EQ(cuFileRead(g.fh, g.m.p, MIB(1), 100, 100), MIB(1));
	ASSERT_MEMEQ(g.m.p + 100, g.want + 100, MIB(1));
	ASSERT_EQ(cuFileWrite(g.fh, g.m.p, MIB(1), MIB(2) + 100, 100), MIB(1));
	ASSERT_OK(strait_stats_get(NULL, &stats));
	ASSERT_EQ(stats.route[P2P].write_bytes, MIB(1) - KIB(4));
	ASSERT_EQ(stats.route[STRAIT_ROUTE_STAGED].write_bytes, KIB(4));
	ASSERT_EQ(fsync(g.fd), 0);
	ASSERT_EQ(cuFileRead(g.fh, g.m.p, MIB(2), MIB(2), MIB(2)), MIB(2));
	memcpy(g.want + MIB(2) + 100, g.want + 100, MIB(1));
	ASSERT_MEMEQ(g.m.p + MIB(2), g.want + MIB(2), MIB(2));
	rig_close(&g, MIB(1) - KIB(4) + MIB(2), MIB(1) - KIB(4));
}
