/* SPDX-License-Identifier: MIT */
/* Statistics of this library. They count between start and stop, at level 1 and above. */
#include "stats.h"
#include "mem.h"

#include <dlfcn.h>
#include <stdlib.h>

#define GPUS 16
#define VERSION_WITH_VECTORS 1190

/* Follows the first level in the structures of version 1.19 and later. */
struct vectors {
	CUfileOpCounter_t ops[2];
	uint64_t bytes[2], bw_bytes_per_sec[2], lat_avg_us[2], ops_per_sec[2], lat_sum_us[2];
};

_Static_assert(sizeof(struct vectors) == 112, "layout");

_Static_assert(sizeof(CUfileStatsLevel1_t) == 512 && sizeof(CUfileStatsLevel2_t) == 1024, "layout");
_Static_assert(sizeof(CUfilePerGpuStats_t) == 248 && sizeof(CUfileStatsLevel3_t) == 5000, "layout");

static pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static CUfileStatsLevel3_t counters;
static struct vectors vector_counters;
static CUfilePerGpuStats_t buffer_counters[GPUS]; /* only n_mmap* are used */
static atomic_int level;
static atomic_bool running;
static uint64_t since_ns, run_ns; /* start of the current run; sum of the previous ones */

void cf_stats_forked(void)
{
	pthread_mutex_init(&stats_lock, NULL);
}

bool cf_stats_wanted(void)
{
	return atomic_load_explicit(&running, memory_order_relaxed) &&
	       atomic_load_explicit(&level, memory_order_relaxed) > 0;
}

static void count_op(CUfileOpCounter_t *c, bool ok)
{
	if (ok)
		c->ok++;
	else
		c->err++;
}

void cf_stat_op(enum cf_op op, bool ok)
{
	CUfileStatsLevel1_t *b = &counters.detailed.basic;
	CUfileOpCounter_t *const of[] = {
		[CF_HANDLE_REG] = &b->hdl_register_ops,	    [CF_HANDLE_DEREG] = &b->hdl_deregister_ops,
		[CF_BUF_REG] = &b->buf_register_ops,	    [CF_BUF_DEREG] = &b->buf_deregister_ops,
		[CF_BATCH_SETUP] = &b->batch_setup_ops,	    [CF_BATCH_CANCEL] = &b->batch_cancel_ops,
		[CF_BATCH_DESTROY] = &b->batch_destroy_ops,
	};

	if (!cf_stats_wanted())
		return;
	pthread_mutex_lock(&stats_lock);
	count_op(of[op], ok);
	pthread_mutex_unlock(&stats_lock);
}

/* Bucket k counts sizes below 4 KiB << k. */
static int size_bucket(uint64_t bytes)
{
	int k = 0;

	while (k < 31 && bytes >> (12 + k))
		k++;
	return k;
}

void cf_stat_buffer(const struct cf_mem *m, bool registered)
{
	int gpu = m ? m->gpu : 0;

	if (!cf_stats_wanted() || gpu < 0 || gpu >= GPUS)
		return;
	pthread_mutex_lock(&stats_lock);
	if (registered) {
		buffer_counters[gpu].n_mmap++;
		*(m ? &buffer_counters[gpu].n_mmap_ok : &buffer_counters[gpu].n_mmap_err) += 1;
		if (m && counters.num_gpus <= (uint32_t)gpu)
			counters.num_gpus = (uint32_t)gpu + 1;
	} else {
		buffer_counters[gpu].n_mmap_free++;
	}
	pthread_mutex_unlock(&stats_lock);
}

void cf_stat_vector(uint32_t op, int64_t result, uint64_t ns)
{
	if (!cf_stats_wanted())
		return;
	pthread_mutex_lock(&stats_lock);
	count_op(&vector_counters.ops[op], result >= 0);
	vector_counters.bytes[op] += result > 0 ? (uint64_t)result : 0;
	vector_counters.lat_sum_us[op] += ns / 1000;
	pthread_mutex_unlock(&stats_lock);
}

static void count_gpu(uint32_t op, int64_t result, uint64_t us, const struct cf_mem *m, uint32_t routes, bool unaligned)
{
	CUfilePerGpuStats_t *g = &counters.per_gpu_stats[m->gpu];
	bool p2p = routes & STRAIT_ROUTE_MASK(STRAIT_ROUTE_P2P);
	uint64_t bytes = result > 0 ? (uint64_t)result : 0;

	if (counters.num_gpus <= (uint32_t)m->gpu)
		counters.num_gpus = (uint32_t)m->gpu + 1;
	if (op == STRAIT_READ) {
		g->n_total_reads++;
		g->n_p2p_reads += p2p;
		g->n_posix_reads += !p2p;
		g->n_unaligned_reads += unaligned;
		g->n_reads_err += result < 0;
		g->read_bytes += bytes;
		g->read_duration_us += us;
	} else {
		g->n_total_writes++;
		g->n_p2p_writes += p2p;
		g->n_posix_writes += !p2p;
		g->n_unaligned_writes += unaligned;
		g->n_writes_err += result < 0;
		g->writes_bytes += bytes;
		g->write_duration_us += us;
	}
}

void cf_stat_io(uint32_t op, int64_t result, uint64_t ns, const struct cf_mem *m, uint32_t routes, uint64_t at)
{
	CUfileStatsLevel1_t *b = &counters.detailed.basic;
	uint64_t bytes = result > 0 ? (uint64_t)result : 0;

	if (!cf_stats_wanted())
		return;
	pthread_mutex_lock(&stats_lock);
	if (op == STRAIT_READ) {
		count_op(&b->read_ops, result >= 0);
		b->read_bytes += bytes;
		b->read_lat_sum_us += ns / 1000;
		counters.detailed.read_size_kb_hist[size_bucket(bytes)] += result >= 0;
	} else {
		count_op(&b->write_ops, result >= 0);
		b->write_bytes += bytes;
		b->write_lat_sum_us += ns / 1000;
		counters.detailed.write_size_kb_hist[size_bucket(bytes)] += result >= 0;
	}
	if (m->gpu >= 0 && m->gpu < GPUS)
		count_gpu(op, result, ns / 1000, m, routes, at % 4096);
	pthread_mutex_unlock(&stats_lock);
}

void cf_stat_submit(const CUfileIOParams_t *p, unsigned int entries, bool ok, uint64_t ns)
{
	CUfileStatsLevel1_t *b = &counters.detailed.basic;
	bool mixed = false;

	if (!cf_stats_wanted())
		return;
	for (unsigned int i = 1; ok && i < entries; i++)
		mixed |= p[i].opcode != p[0].opcode;
	pthread_mutex_lock(&stats_lock);
	count_op(&b->batch_submit_ops, ok);
	count_op(&b->batch_total_submit_ops, ok);
	if (mixed)
		count_op(&b->batch_mixed_io_submit_ops, ok);
	if (ok) {
		b->batch_enqueued_ops.ok += entries;
		b->batch_posix_enqueued_ops.ok += entries;
		b->batch_submit_lat_sum_us += ns / 1000;
		b->last_batch_read_bytes = b->last_batch_write_bytes = 0;
	}
	pthread_mutex_unlock(&stats_lock);
}

void cf_stat_batch(uint32_t op, int64_t result, uint64_t ns)
{
	CUfileStatsLevel1_t *b = &counters.detailed.basic;
	uint64_t bytes = result > 0 ? (uint64_t)result : 0;

	if (!cf_stats_wanted())
		return;
	pthread_mutex_lock(&stats_lock);
	count_op(&b->batch_complete_ops, result >= 0);
	count_op(&b->batch_processed_ops, result >= 0);
	count_op(&b->batch_posix_processed_ops, result >= 0);
	b->batch_completion_lat_sum_us += ns / 1000;
	*(op == STRAIT_READ ? &b->batch_read_bytes : &b->batch_write_bytes) += bytes;
	*(op == STRAIT_READ ? &b->last_batch_read_bytes : &b->last_batch_write_bytes) += bytes;
	pthread_mutex_unlock(&stats_lock);
}

static CUfileError_t stats_start(void)
{
	pthread_mutex_lock(&stats_lock);
	if (!atomic_exchange(&running, true))
		since_ns = cf_now_ns();
	pthread_mutex_unlock(&stats_lock);
	return CF_OK;
}

void cf_stats_configure(size_t configured)
{
	if (!configured)
		return;
	atomic_store(&level, (int)configured);
	stats_start();
}

CF_API CUfileError_t cuFileSetStatsLevel(int l)
{
	if (l < 0 || l > 3)
		return cf_error(CU_FILE_INVALID_VALUE);
	atomic_store(&level, l);
	return CF_OK;
}

CF_API CUfileError_t cuFileGetStatsLevel(int *l)
{
	if (!l)
		return cf_error(CU_FILE_INVALID_VALUE);
	*l = atomic_load(&level);
	return CF_OK;
}

CF_API CUfileError_t cuFileStatsStart(void)
{
	return atomic_load(&level) ? stats_start() : cf_error(CU_FILE_INVALID_VALUE);
}

CF_API CUfileError_t cuFileStatsStop(void)
{
	pthread_mutex_lock(&stats_lock);
	if (atomic_exchange(&running, false))
		run_ns += cf_now_ns() - since_ns;
	pthread_mutex_unlock(&stats_lock);
	return CF_OK;
}

CF_API CUfileError_t cuFileStatsReset(void)
{
	pthread_mutex_lock(&stats_lock);
	memset(&counters, 0, sizeof(counters));
	memset(&vector_counters, 0, sizeof(vector_counters));
	memset(buffer_counters, 0, sizeof(buffer_counters));
	run_ns = 0;
	since_ns = cf_now_ns();
	pthread_mutex_unlock(&stats_lock);
	return CF_OK;
}

static uint64_t rate(uint64_t amount, uint64_t ns)
{
	return ns ? (uint64_t)((double)amount * 1e9 / (double)ns) : 0;
}

static uint64_t mean(uint64_t sum, uint64_t n)
{
	return n ? sum / n : 0;
}

/* The share of the run in which transfers were in flight, in percent. */
static uint64_t busy_percent(uint64_t us, uint64_t ns)
{
	uint64_t percent = ns ? us * 100000 / ns : 0;

	return percent < 100 ? percent : 100;
}

/* If a device was used, the CUDA driver is loaded. This is the only call of CUDA in libcufile. */
static void gpu_uuid(int gpu, char *uuid)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	int (*get)(char *uuid, int device) = NULL;
	int (*ordinal)(int *device, int n) = NULL;
	int device;

	if (!lib)
		return;
	*(void **)&get = dlsym(lib, "cuDeviceGetUuid_v2");
	*(void **)&ordinal = dlsym(lib, "cuDeviceGet");
	if (get && ordinal && !ordinal(&device, gpu))
		get(uuid, device);
	dlclose(lib);
}

static void derive_gpu_rates(CUfilePerGpuStats_t *g, int gpu, uint64_t ns)
{
	gpu_uuid(gpu, g->uuid);
	g->read_bw_bytes_per_sec = rate(g->read_bytes, ns);
	g->write_bw_bytes_per_sec = rate(g->writes_bytes, ns);
	g->read_utilization = busy_percent(g->read_duration_us, ns);
	g->write_utilization = busy_percent(g->write_duration_us, ns);
	g->reg_bytes = cf_buffers_registered_bytes(gpu);
	g->n_mmap = buffer_counters[gpu].n_mmap;
	g->n_mmap_ok = buffer_counters[gpu].n_mmap_ok;
	g->n_mmap_err = buffer_counters[gpu].n_mmap_err;
	g->n_mmap_free = buffer_counters[gpu].n_mmap_free;
}

/* Copies the counters and derives rates and averages from them. */
static int stats_snapshot(int wanted, CUfileStatsLevel3_t *out, struct vectors *vec)
{
	CUfileStatsLevel1_t *b = &out->detailed.basic;
	uint64_t ns;

	if (atomic_load(&level) < wanted)
		return CU_FILE_INVALID_VALUE;
	pthread_mutex_lock(&stats_lock);
	*out = counters;
	*vec = vector_counters;
	ns = run_ns + (atomic_load(&running) ? cf_now_ns() - since_ns : 0);
	pthread_mutex_unlock(&stats_lock);
	b->read_bw_bytes_per_sec = rate(b->read_bytes, ns);
	b->write_bw_bytes_per_sec = rate(b->write_bytes, ns);
	b->read_ops_per_sec = rate(b->read_ops.ok, ns);
	b->write_ops_per_sec = rate(b->write_ops.ok, ns);
	b->read_lat_avg_us = mean(b->read_lat_sum_us, b->read_ops.ok + b->read_ops.err);
	b->write_lat_avg_us = mean(b->write_lat_sum_us, b->write_ops.ok + b->write_ops.err);
	b->batch_read_bw_bytes = rate(b->batch_read_bytes, ns);
	b->batch_write_bw_bytes = rate(b->batch_write_bytes, ns);
	b->batch_submit_ops_per_sec = rate(b->batch_submit_ops.ok, ns);
	b->batch_complete_ops_per_sec = rate(b->batch_complete_ops.ok, ns);
	b->batch_submit_lat_avg_us = mean(b->batch_submit_lat_sum_us, b->batch_submit_ops.ok);
	b->batch_completion_lat_avg_us =
		mean(b->batch_completion_lat_sum_us, b->batch_complete_ops.ok + b->batch_complete_ops.err);
	for (int op = 0; op < 2; op++) {
		vec->bw_bytes_per_sec[op] = rate(vec->bytes[op], ns);
		vec->ops_per_sec[op] = rate(vec->ops[op].ok, ns);
		vec->lat_avg_us[op] = mean(vec->lat_sum_us[op], vec->ops[op].ok + vec->ops[op].err);
	}
	for (uint32_t i = 0; i < out->num_gpus; i++)
		derive_gpu_rates(&out->per_gpu_stats[i], (int)i, ns);
	return CU_FILE_SUCCESS;
}

/* Version 1.19 has the counters of vectored I/O between the first level and the rest. */
static CUfileError_t stats_copy_out(int wanted, void *out, size_t len)
{
	size_t first = sizeof(CUfileStatsLevel1_t);
	CUfileStatsLevel3_t *all = out ? malloc(sizeof(*all)) : NULL;
	struct vectors vec;
	int code = all ? stats_snapshot(wanted, all, &vec) : out ? CU_FILE_NOMEM_ERROR : CU_FILE_INVALID_VALUE;
	char *to = out;

	if (!code && cf_version() < VERSION_WITH_VECTORS) {
		memcpy(to, all, len);
	} else if (!code) {
		memcpy(to, all, first);
		memcpy(to + first, &vec, sizeof(vec));
		memcpy(to + first + sizeof(vec), (char *)all + first, len - first);
	}
	free(all);
	return cf_error(code);
}

CF_API CUfileError_t cuFileGetStatsL1(CUfileStatsLevel1_t *stats)
{
	return stats_copy_out(1, stats, sizeof(*stats));
}

CF_API CUfileError_t cuFileGetStatsL2(CUfileStatsLevel2_t *stats)
{
	return stats_copy_out(2, stats, sizeof(*stats));
}

CF_API CUfileError_t cuFileGetStatsL3(CUfileStatsLevel3_t *stats)
{
	return stats_copy_out(3, stats, sizeof(*stats));
}
