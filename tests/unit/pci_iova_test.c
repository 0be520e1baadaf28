/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "harness/harness.h"
#include "pci/backend.h"
#include "pci/iova.h"

static const struct iova_range pc[] = { { 0xfef00000, UINT64_C(0xffffffffffff) }, { 0, 0xfedfffff } };

TEST(addresses_lie_in_what_is_usable)
{
	struct iova v;
	uint64_t at;

	ASSERT_OK(iova_init(&v, pc, 2));
	ASSERT_OK(iova_alloc(&v, KIB(4), KIB(4), 0, &at));
	ASSERT_EQ(at, KIB(64));
	/* No allocation reaches into the hole. */
	ASSERT_OK(iova_alloc(&v, GIB(3) + MIB(900), KIB(4), 0, &at));
	ASSERT_OK(iova_alloc(&v, GIB(1), KIB(4), 0, &at));
	ASSERT_GE(at, 0xfef00000u);
	ASSERT_EQ(iova_alloc(&v, UINT64_MAX, KIB(4), 0, &at), -ENOSPC);
	ASSERT_EQ(iova_alloc(&v, 0, KIB(4), 0, &at), -ENOSPC);
	iova_fini(&v);
}

TEST(the_device_has_few_lines)
{
	struct iova v;
	uint64_t at;
	int n = 0;

	ASSERT_OK(iova_init(&v, pc, 2));
	v.limit = UINT64_MAX >> (64 - 28);
	while (!iova_alloc(&v, MIB(1), MIB(1), 0, &at)) {
		ASSERT_LE(at + MIB(1) - 1, 0x0fffffffu);
		n++;
	}
	ASSERT_EQ(n, 255);
	iova_fini(&v);
}

TEST(phases)
{
	struct iova v;
	uint64_t at;

	ASSERT_OK(iova_init(&v, pc, 2));
	for (uint64_t phase = 0; phase < MIB(2); phase += KIB(300) / 4096 * 4096) {
		ASSERT_OK(iova_alloc(&v, MIB(2), MIB(2), 0x7f0000000000 + phase, &at));
		ASSERT_EQ(at % MIB(2), phase);
	}
	iova_fini(&v);
}

/* Compared with a simple list. */
TEST(never_twice)
{
	enum { N = 300 };
	struct iova_range live[N];
	uint64_t state = 1, at;
	unsigned int n = 0;
	struct iova v;

	ASSERT_OK(iova_init(&v, pc, 2));
	v.limit = MIB(64) - 1;
	for (int i = 0; i < 20000; i++) {
		if (n < N && prng_below(&state, 2)) {
			uint64_t len = (1 + prng_below(&state, 64)) * KIB(4), align = KIB(4) << prng_below(&state, 6);

			if (iova_alloc(&v, len, align, 0, &at))
				continue;
			ASSERT_EQ(at % align, 0);
			ASSERT_GE(at, KIB(64));
			ASSERT_LT(at + len - 1, MIB(64));
			for (unsigned int k = 0; k < n; k++)
				ASSERT_TRUE(at > live[k].last || at + len - 1 < live[k].start);
			live[n++] = (struct iova_range){ at, at + len - 1 };
		} else if (n) {
			unsigned int k = (unsigned int)prng_below(&state, n);

			iova_free(&v, live[k].start);
			live[k] = live[--n];
		}
	}
	ASSERT_EQ(v.n_used, n);
	iova_fini(&v);
}

TEST(runs_are_cut_and_joined)
{
	struct pci_run *runs = malloc(4 * sizeof(*runs));
	struct pci_mapping m = { .length = 3 * 4096 };

	runs[0] = (struct pci_run){ 0x1000, 0x1000 };
	runs[1] = (struct pci_run){ 0x2000, 0x1000 };
	runs[2] = (struct pci_run){ 0x9000, 0x1000 };
	runs[3] = (struct pci_run){ 0xa000, 0x1000 };
	pci_fill_runs(&m, runs, 4, 100);
	ASSERT_EQ(m.count, 2);
	ASSERT_EQ(m.run[0].bus, 0x1064);
	ASSERT_EQ(m.run[0].length, 0x2000 - 100);
	ASSERT_EQ(m.run[1].bus, 0x9000);
	ASSERT_EQ(m.run[1].length, 0x1000 + 100);
	free(m.run);
}

TEST(names)
{
	char name[PCI_NAME];

	ASSERT_OK(pci_full_name("0000:01:00.0", name));
	ASSERT_STREQ(name, "0000:01:00.0");
	ASSERT_OK(pci_full_name("01:00.0", name));
	ASSERT_STREQ(name, "0000:01:00.0");
	ASSERT_EQ(pci_full_name("", name), -EINVAL);
	ASSERT_EQ(pci_full_name("../../x", name), -EINVAL);
	ASSERT_EQ(pci_full_name("0000:01:00.0000000000000000", name), -EINVAL);
}
