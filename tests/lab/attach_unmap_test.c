/* SPDX-License-Identifier: MIT */
/* /dev/strait: memory that is unmapped while a device is about to write to it. */
#include "raw.h"

#define LEN KIB(256)
#define SEED 21

/* Devices that write to revoked addresses. */
__attribute__((constructor)) static void allow_faults(void)
{
	printf("# allow-log DMAR: (DRHD: handling fault|\\[DMA)\n");
	fflush(stdout);
}

/* How long a lazy IOMMU may use a translation that was removed: the kernel's IOVA_DEFAULT_FQ_TIMEOUT. */
#define LAZY_MS 10
#define LAZY_TRIES 80

/*
 * The engine writes through the mapping, so that the IOMMU caches its translation, and is about to write again when it
 * is unmapped. Returns how many milliseconds after that it writes; -1: it has written before.
 */
static int write_after_unmap(struct raw *e, unsigned char *p, uint32_t region, unsigned int delay_ms)
{
	struct strait_ioc_map map;
	uint64_t at;
	bool busy;

	ASSERT_OK(raw_map(e->ko, region, 0, LEN, &map));
	raw_load(e, SEED);
	raw_start(e, map.bus, EDU_MOST, true);
	raw_wait(e);
	ASSERT_TRUE(filled(p, EDU_MOST, SEED));
	fill(p, EDU_MOST, SEED + 1);
	raw_start(e, map.bus, EDU_MOST, true);
	sleep_ms(delay_ms);
	ASSERT_OK(raw_mapping(e->ko, STRAIT_IOC_UNMAP, map.handle));
	busy = raw_busy(e);
	at = now_ms();
	raw_wait(e);
	at = now_ms() - at;
	sleep_ms(2);
	if (!busy)
		return -1;
	ASSERT_TRUE(filled(p, EDU_MOST, SEED + 1));
	return (int)at;
}

/* When UNMAP returns the device does not reach the memory, also if the IOMMU flushes its translations lazily. */
TEST_TIMEOUT(unmapped_at_the_last_moment, 120)
{
	struct raw e = raw_open();
	unsigned char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	uint32_t region = ko_import(e.ko, STRAIT_IMPORT_USER, p, LEN);
	int delay = 80, within = 0, tries = 0;

	while (within < 3) {
		int after = write_after_unmap(&e, p, region, (unsigned int)delay);

		ASSERT_LT(++tries, LAZY_TRIES);
		within += after >= 0 && after < LAZY_MS;
		/* Closer to the moment at which it writes. */
		if (after < 0)
			delay = delay > 4 ? delay - 4 : 0;
		else
			delay += after > 8 ? after - 6 : 1;
	}
	raw_close(&e);
	ko_expect_counter("pinned_bytes", 0);
}
