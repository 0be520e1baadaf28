/* SPDX-License-Identifier: MIT */
/* How fast the CUDA provider's operations are on this machine's GPU. Prints numbers without judgement. */
#include <stdio.h>
#include <stdlib.h>

#include "base/util.h"
#include "device/provider.h"
#include "os/os.h"

#define BYTES MIB(256)
#define SEGS 8192u

static struct device_set set;
static const struct log_sink no_log;
static struct strait_device *dev;
static const struct provider_ops *ops;
static struct dev_stream *s;
static struct provider_mem m;
static struct host_reg reg;
static char *host;

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	printf("%s: %s\n", what, strerror(-rc));
	exit(1);
}

static void wait_all(void)
{
	must(ops->stream_wait(s, STRAIT_FOREVER), "wait");
}

static void rate(const char *what, uint64_t bytes, uint64_t start)
{
	double ns = (double)(os_now_ns() - start);

	printf("%-52s %9.2f GB/s\n", what, (double)bytes / ns);
}

static void cost(const char *what, unsigned int n, uint64_t start)
{
	printf("%-52s %9.2f us\n", what, (double)(os_now_ns() - start) / 1000 / n);
}

static void copies(void)
{
	uint64_t t = os_now_ns();

	for (int i = 0; i < 10; i++)
		for (uint64_t at = 0; at < BYTES; at += MIB(4))
			must(ops->copy_in(s, m.addr + at, host + at, MIB(4)), "copy_in");
	wait_all();
	rate("copy_in, 4 MiB at a time", 10 * BYTES, t);
	t = os_now_ns();
	for (int i = 0; i < 10; i++)
		for (uint64_t at = 0; at < BYTES; at += MIB(4))
			must(ops->copy_out(s, host + at, m.addr + at, MIB(4)), "copy_out");
	wait_all();
	rate("copy_out, 4 MiB at a time", 10 * BYTES, t);
	t = os_now_ns();
	for (int i = 0; i < 1000; i++) {
		must(ops->copy_in(s, m.addr, host, 4096), "copy_in");
		wait_all();
	}
	cost("copy_in of 4 KiB, waited for", 1000, t);
}

static void lists(bool out, uint64_t len, uint64_t skew, unsigned int batch)
{
	static struct copy_seg seg[SEGS];
	unsigned int n = (unsigned int)min_u64(SEGS, BYTES / 2 / len), rounds = 20;
	char what[80];
	uint64_t t;

	for (unsigned int i = 0; i < n; i++) {
		/* Scattered on the device, contiguous in host memory. */
		uint64_t there = m.addr + (uint64_t)(i * 2654435761u % n) * len + skew, here = reg.dev_addr + i * len;

		seg[i] = (struct copy_seg){ out ? here : there, out ? there : here, len };
	}
	must(ops->copy_list(s, seg, batch), "copy_list");
	wait_all();
	t = os_now_ns();
	for (unsigned int i = 0; i < rounds; i++) {
		for (unsigned int at = 0; at < n; at += batch)
			must(ops->copy_list(s, seg + at, (unsigned int)min_u64(batch, n - at)), "copy_list");
	}
	wait_all();
	str_format(what, sizeof(what), "copy_list %s, %u of %u bytes%s", out ? "out" : "in", batch, (unsigned int)len,
		   skew ? ", aligned differently" : "");
	rate(what, (uint64_t)rounds * n * len, t);
	t = os_now_ns();
	for (unsigned int i = 0; i < 200; i++) {
		must(ops->copy_list(s, seg, batch), "copy_list");
		wait_all();
	}
	cost("  one of these, waited for", 200, t);
}

static void work(void)
{
	uint64_t where, sizes[] = { MIB(1), MIB(16), BYTES / 2 };
	uint32_t crc = 0;
	char what[80];
	uint64_t t;

	must(ops->crc32c(s, m.addr, MIB(1), &crc), "crc32c");
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		t = os_now_ns();
		for (int k = 0; k < 10; k++)
			must(ops->crc32c(s, m.addr, sizes[i], &crc), "crc32c");
		str_format(what, sizeof(what), "crc32c of %u MiB", (unsigned int)(sizes[i] >> 20));
		rate(what, 10 * sizes[i], t);
	}
	must(ops->fill(s, m.addr, 1, BYTES), "fill");
	t = os_now_ns();
	for (int k = 0; k < 10; k++)
		must(ops->compare(s, m.addr, m.addr + BYTES / 2, BYTES / 2, &where), "compare");
	rate("compare of 128 MiB", 10 * BYTES / 2, t);
	t = os_now_ns();
	for (int k = 0; k < 10; k++)
		must(ops->compare(s, m.addr, m.addr + BYTES / 2 + 1, BYTES / 2 - 1, &where), "compare");
	rate("compare of 128 MiB, not aligned", 10 * BYTES / 2, t);
}

static void calls(void)
{
	struct host_reg other;
	uint64_t t = os_now_ns();
	void *p;

	for (int i = 0; i < 100000; i++)
		must(ops->mem_check(dev, &m, 0, m.len), "mem_check");
	cost("mem_check", 100000, t);
	t = os_now_ns();
	for (int i = 0; i < 100000; i++)
		wait_all();
	cost("stream_wait, nothing to wait for", 100000, t);
	must(os_map_anon(MIB(16), -1, &p), "map");
	memset(p, 1, MIB(16));
	must(ops->host_register(dev, p, MIB(16), 0, &other), "host_register");
	ops->host_unregister(dev, &other);
	t = os_now_ns();
	for (int i = 0; i < 20; i++) {
		must(ops->host_register(dev, p, MIB(16), 0, &other), "host_register");
		ops->host_unregister(dev, &other);
	}
	cost("register and unregister 16 MiB", 20, t);
}

int main(void)
{
	char why[256];
	void *p;

	must(device_set_open(&set, &no_log, NULL), "open");
	if (device_set_find(&set, "cuda:0", &dev)) {
		device_set_missing_reason(&set, "cuda:0", why, sizeof(why));
		printf("no GPU: %s\n", why);
		return 0;
	}
	ops = dev->ops;
	must(ops->mem_alloc(dev, BYTES + MIB(1), &m), "alloc");
	must(os_map_anon(BYTES, dev->numa_node, &p), "map");
	host = p;
	memset(host, 1, BYTES);
	must(ops->host_register(dev, host, BYTES, 0, &reg), "host_register");
	must(ops->stream_open(dev, &m, &s), "stream_open");
	copies();
	for (int out = 0; out < 2; out++) {
		lists(out, 4096, 0, 256);
		lists(out, 4096, 0, SEGS);
		lists(out, 4096, 3, 256);
		lists(out, KIB(16), 0, 256);
		lists(out, KIB(64), 0, 256);
		lists(out, 512, 0, 256);
	}
	work();
	calls();
	ops->stream_close(s);
	ops->host_unregister(dev, &reg);
	ops->mem_free(dev, &m);
	device_set_close(&set);
	return 0;
}
