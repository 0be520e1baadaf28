/* SPDX-License-Identifier: MIT */
/* Measures the commands of one queue pair, with --depth of them in flight. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <strait/nvme.h>
#include <strait/strait.h>

#include "lib/cli.h"
#include "lib/hist.h"
#include "lib/json.h"
#include "lib/size.h"
#include "verbs/nvme/nvme.h"

enum { BATCH = 256 };

struct run {
	struct nvme_cmd *c;
	struct strait_nvme_queue *q;
	struct strait_nvme_map *map;
	struct hist hist;
	uint64_t *started; /* by slot of the memory */
	uint32_t *free;	   /* slots */
	uint32_t n_free;
	uint64_t state, next, ops, ns, cpu_ns;
	uint32_t per; /* blocks per command */
};

static uint64_t cpu_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t pick(struct run *r)
{
	uint64_t slots = r->c->ns.blocks / r->per;

	if (r->c->sequential)
		return r->next++ % slots * r->per;
	r->state = r->state * 6364136223846793005u + 1442695040888963407u;
	return (r->state >> 20) % slots * r->per;
}

static int submit(struct run *r, uint64_t now)
{
	struct strait_nvme_command cmd[BATCH];
	unsigned int n = 0;
	int done;

	for (; n < r->n_free && n < BATCH; n++) {
		uint32_t slot = r->free[r->n_free - 1 - n];
		uint64_t lba = pick(r);

		cmd[n] = (struct strait_nvme_command){
			.opcode = r->c->write ? 1 : 2,
			.nsid = r->c->nsid,
			.cdw10 = { (uint32_t)lba, (uint32_t)(lba >> 32), r->per - 1 },
			.map = r->map,
			.offset = (uint64_t)slot * r->c->block,
			.length = r->c->block,
			.user_data = slot,
		};
		r->started[slot] = now;
	}
	done = n ? strait_nvme_queue_submit(r->q, cmd, n) : 0;
	if (done < 0)
		return fail(CLI_FAILED, NULL, "%s: cannot submit commands: %s", r->c->name, error_text(done));
	r->n_free -= (uint32_t)done;
	return CLI_OK;
}

static int reap(struct run *r)
{
	struct strait_nvme_result res[BATCH];
	int n = strait_nvme_queue_wait(r->q, 1, BATCH, STRAIT_FOREVER, res);
	uint64_t now = now_ns();

	for (int i = 0; i < n; i++) {
		if (res[i].status)
			return fail(CLI_FAILED, NULL, "%s: %s (%s)", r->c->name,
				    strait_nvme_status_name(res[i].nvme_status), error_text(res[i].status));
		hist_add(&r->hist, now - r->started[res[i].user_data]);
		r->free[r->n_free++] = (uint32_t)res[i].user_data;
		r->ops++;
	}
	return CLI_OK;
}

static int measure(struct run *r)
{
	uint64_t start = now_ns(), cpu = cpu_now(), end = start + (uint64_t)(r->c->seconds * 1e9), now = start;
	int code = CLI_OK;

	while (!code && now < end) {
		code = submit(r, now);
		if (!code)
			code = reap(r);
		now = now_ns();
	}
	r->ns = now - start;
	r->cpu_ns = cpu_now() - cpu;
	while (!code && r->n_free < r->c->depth)
		code = reap(r);
	return code;
}

static void report(const struct run *r)
{
	double iops = r->ns ? (double)r->ops / ((double)r->ns / 1e9) : 0,
	       cpu = r->ops ? (double)r->cpu_ns / (double)r->ops : 0;
	char rate[SIZE_TEXT], size[SIZE_TEXT];
	struct json j;

	if (cli.json) {
		json_begin(&j, stdout);
		json_string(&j, "pci", r->c->info.name);
		json_string(&j, "device", r->c->target.info.name);
		json_string(&j, "op", r->c->write ? "write" : "read");
		json_uint(&j, "block", r->c->block);
		json_uint(&j, "depth", r->c->depth);
		json_uint(&j, "ops", r->ops);
		json_number(&j, "iops", iops);
		json_number(&j, "gb_per_s", rate_gbs(r->ops * r->c->block, r->ns));
		json_number(&j, "p50_us", (double)hist_percentile(&r->hist, 50) / 1e3);
		json_number(&j, "p99_us", (double)hist_percentile(&r->hist, 99) / 1e3);
		json_number(&j, "max_us", (double)r->hist.max / 1e3);
		json_number(&j, "cpu_ns_per_op", cpu);
		json_finish(&j);
		return;
	}
	printf("%s of %s, depth %u, %s, memory on %s, %s\n", r->c->write ? "writes" : "reads",
	       size_short(r->c->block, size), r->c->depth, r->c->sequential ? "sequential" : "random",
	       r->c->target.info.name, r->c->interrupts ? "interrupts" : "polled");
	printf("  %.0f commands/s, %s\n", iops, rate_format(r->ops * r->c->block, r->ns, rate));
	printf("  latency p50 %.1f us, p99 %.1f us, max %.1f us\n", (double)hist_percentile(&r->hist, 50) / 1e3,
	       (double)hist_percentile(&r->hist, 99) / 1e3, (double)r->hist.max / 1e3);
	printf("  %.0f ns of CPU time per command\n", cpu);
}

static int check(const struct nvme_cmd *c)
{
	if (c->write && !c->force)
		return fail(CLI_USAGE, "give --force to overwrite it", "%s would be overwritten", c->name);
	if (!c->block || c->block % c->ns.lba_bytes || c->block > c->info.max_transfer)
		return fail(CLI_USAGE, "see: strait nvme identify", "--block must be 1 to %u blocks of %u bytes",
			    c->info.max_transfer / c->ns.lba_bytes, c->ns.lba_bytes);
	if (c->block / c->ns.lba_bytes > c->ns.blocks)
		return fail(CLI_USAGE, "use a smaller --block", "namespace %u is smaller than --block", c->nsid);
	if (c->depth >= c->info.max_entries)
		return fail(CLI_USAGE, "use a smaller --depth", "the queues of the drive have %u entries",
			    c->info.max_entries);
	return CLI_OK;
}

static int prepare(struct run *r, struct strait_region **mem)
{
	struct nvme_cmd *c = r->c;
	struct strait_nvme_queue_opts qo = { .size = sizeof(qo),
					     .entries = c->depth + 1 < 4 ? 4 : c->depth + 1,
					     .flags = c->interrupts ? STRAIT_NVME_INTERRUPTS : 0,
					     .region = c->queue_region,
					     .offset = c->queue_region ? 2 * MIB : 0 };
	int err = strait_region_alloc(c->target.dev, c->depth * c->block, mem);

	if (!err)
		err = strait_nvme_map(c->nvme, *mem, 0, c->depth * c->block, &r->map);
	if (err)
		return fail(CLI_NO_ROUTE, "see: strait info", "cannot map memory of %s for the drive: %s",
			    c->target.info.name, error_text(err));
	err = strait_nvme_queue_open(c->nvme, &qo, &r->q);
	if (err)
		return fail(CLI_FAILED, NULL, "cannot create a queue pair: %s", error_text(err));
	r->per = (uint32_t)(c->block / c->ns.lba_bytes);
	r->started = xcalloc(c->depth, sizeof(*r->started));
	r->free = xcalloc(c->depth, sizeof(*r->free));
	for (uint32_t i = 0; i < c->depth; i++)
		r->free[r->n_free++] = i;
	return CLI_OK;
}

int nvme_cmd_bench(struct nvme_cmd *c)
{
	struct run *r = xcalloc(1, sizeof(*r));
	struct strait_region *mem = NULL;
	int code = nvme_open_endpoint(c, STRAIT_NVME_READ_ONLY);

	r->c = c;
	r->state = c->seed;
	if (!code)
		code = check(c);
	if (!code)
		code = prepare(r, &mem);
	if (!code)
		code = measure(r);
	if (!code)
		report(r);
	strait_nvme_queue_close(r->q);
	strait_nvme_unmap(r->map);
	strait_region_close(mem);
	free(r->started);
	free(r->free);
	free(r);
	return code;
}
