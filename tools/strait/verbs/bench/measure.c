/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/cli.h"
#include "verbs/bench/bench.h"

static const char *const mode_names[BENCH_MODES] = {
	[BENCH_READ] = "read",
	[BENCH_WRITE] = "write",
	[BENCH_RANDREAD] = "randread",
	[BENCH_RANDWRITE] = "randwrite",
};

const char *bench_mode_name(enum bench_mode mode)
{
	return mode_names[mode];
}

const char *bench_series_name(enum bench_series series)
{
	static const char *const names[BENCH_SERIES] = {
		[BENCH_STRAIT] = "strait",
		[BENCH_HOST] = "host",
		[BENCH_CUFILE] = "cufile",
		[BENCH_STAGED] = "staged",
	};

	return names[series];
}

int bench_mode_parse(const char *name)
{
	for (int i = 0; i < BENCH_MODES; i++)
		if (!strcmp(mode_names[i], name))
			return i;
	return -EINVAL;
}

void bench_start(struct bench_worker *w)
{
	pthread_barrier_wait(&w->run->barrier); /* all workers are ready */
	pthread_barrier_wait(&w->run->barrier); /* the clock has started */
}

bool bench_next(struct bench_worker *w, uint64_t *off)
{
	struct bench_run *run = w->run;
	uint64_t i;

	if (atomic_load_explicit(&run->stop, memory_order_relaxed))
		return false;
	/* A row has at least one operation, however short its duration. */
	if (run->deadline_ns && now_ns() >= run->deadline_ns && atomic_load_explicit(&run->next, memory_order_relaxed))
		return false;
	i = atomic_fetch_add_explicit(&run->next, 1, memory_order_relaxed);
	if (!run->deadline_ns && i >= run->blocks)
		return false;
	if (run->load->mode == BENCH_RANDREAD || run->load->mode == BENCH_RANDWRITE) {
		w->random ^= w->random << 13;
		w->random ^= w->random >> 7;
		w->random ^= w->random << 17;
		i = w->random;
	}
	*off = i % run->blocks * run->load->block;
	return true;
}

void bench_done(struct bench_worker *w, uint64_t start_ns, uint64_t bytes)
{
	hist_add(&w->hist, now_ns() - start_ns);
	w->bytes += bytes;
}

void bench_failed(struct bench_worker *w, int err, const struct strait_transfer *t, const struct strait_result *result)
{
	struct bench_run *run = w->run;

	atomic_store(&run->stop, true);
	pthread_mutex_lock(&run->lock);
	if (!run->failed) {
		run->failed = true;
		run->failed_err = err;
		run->failed_transfer = *t;
		run->failed_result = *result;
	}
	pthread_mutex_unlock(&run->lock);
}

static void *worker_main(void *arg)
{
	struct bench_worker *w = arg;

	w->run->fn(w, w->run->arg);
	w->end_ns = now_ns();
	return NULL;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* CPU time of the whole machine since boot, interrupts included; 0 if /proc/stat cannot be read. */
static double machine_seconds(void)
{
	unsigned long long user, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");
	int n = 0;

	if (f) {
		n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle, &iowait, &irq,
			   &softirq);
		fclose(f);
	}
	return n == 7 ? (double)(user + nice + system + irq + softirq) / (double)sysconf(_SC_CLK_TCK) : 0;
}

static void fill_row(struct bench_row *row, struct bench_worker *workers, unsigned int n, uint64_t start_ns, double cpu,
		     double machine)
{
	struct hist *all = xcalloc(1, sizeof(*all));

	for (unsigned int i = 0; i < n; i++) {
		struct bench_worker *w = &workers[i];

		hist_merge(all, &w->hist);
		row->bytes += w->bytes;
		for (int r = 0; r < STRAIT_ROUTE_COUNT; r++)
			row->route_bytes[r] += w->route_bytes[r];
		if (w->end_ns - start_ns > row->ns)
			row->ns = w->end_ns - start_ns;
	}
	row->ops = all->count;
	row->avg_us = all->count ? (double)all->sum / (double)all->count / 1e3 : 0;
	row->p50_us = (double)hist_percentile(all, 50) / 1e3;
	row->p99_us = (double)hist_percentile(all, 99) / 1e3;
	row->max_us = (double)all->max / 1e3;
	row->cpus = row->ns ? cpu * 1e9 / (double)row->ns : 0;
	row->cpu_ms_gib = row->bytes ? cpu * 1e3 * (1ull << 30) / (double)row->bytes : 0;
	row->all_ms_gib = row->bytes ? machine * 1e3 * (1ull << 30) / (double)row->bytes : 0;
	free(all);
}

int bench_measure(struct bench_run *run, const struct bench_load *load, unsigned int threads, bench_fn *fn, void *arg,
		  struct bench_row *row)
{
	struct bench_worker *workers = xcalloc(threads, sizeof(*workers));
	uint64_t start_ns;
	unsigned int n;
	double cpu, all;

	*run = (struct bench_run){ .load = load, .fn = fn, .arg = arg, .blocks = load->file->bytes / load->block };
	pthread_mutex_init(&run->lock, NULL);
	/* The barrier counts all threads: if one cannot be created, the others would wait forever. */
	pthread_barrier_init(&run->barrier, NULL, threads + 1);
	for (n = 0; n < threads; n++) {
		int err;

		workers[n].run = run;
		workers[n].index = n;
		workers[n].random = 0x9e3779b97f4a7c15u * (n + 1);
		err = pthread_create(&workers[n].thread, NULL, worker_main, &workers[n]);
		if (err) {
			fail(CLI_FAILED, "use fewer --threads", "cannot start thread %u: %s", n + 1, strerror(err));
			exit(CLI_FAILED); /* the threads already started wait at the barrier */
		}
	}
	pthread_barrier_wait(&run->barrier);
	cpu = cpu_seconds();
	all = machine_seconds();
	start_ns = now_ns();
	if (load->seconds > 0)
		run->deadline_ns = start_ns + (uint64_t)(load->seconds * 1e9);
	pthread_barrier_wait(&run->barrier);
	for (unsigned int i = 0; i < n; i++)
		pthread_join(workers[i].thread, NULL);
	cpu = cpu_seconds() - cpu;
	all = machine_seconds() - all;

	*row = (struct bench_row){ .load = *load };
	fill_row(row, workers, n, start_ns, cpu, all);
	pthread_barrier_destroy(&run->barrier);
	pthread_mutex_destroy(&run->lock);
	free(workers);
	return run->failed ? run->failed_err : 0;
}
