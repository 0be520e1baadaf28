/* SPDX-License-Identifier: MIT */
/*
 * Loads a file into device memory on every rank of an MPI program: each byte is read once, by one of the ranks, and handed
 * on by MPI_Bcast.
 *
 *   mpicc -o mpi_load mpi_load.c $(pkg-config --cflags --libs strait)
 *   mpirun -n 4 ./mpi_load FILE [DEVICE]
 *
 * On a CUDA device MPI must be CUDA-aware. An error of one rank ends all of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdio.h>
#include <strait/strait.h>
#include <string.h>

#define SHARE (64u << 20) /* what one rank reads and hands on at a time */

/* The first error of any rank, on all of them: no rank is left waiting for one that failed. */
static int agree(int rc)
{
	int all;

	MPI_Allreduce(&rc, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return all;
}

static uint64_t share_length(uint64_t start, uint64_t length)
{
	return length - start < SHARE ? length - start : SHARE;
}

/* Read the shares whose number modulo the number of ranks is this rank's. */
static int read_shares(struct strait_endpoint *file, struct strait_region *mem, uint64_t length, int rank, int ranks)
{
	for (uint64_t start = (uint64_t)rank * SHARE; start < length; start += (uint64_t)ranks * SHARE) {
		uint64_t want = share_length(start, length);
		ssize_t n = strait_read(file, start, mem, start, want);

		if (n < 0)
			return (int)n;
		if ((uint64_t)n < want)
			return -ENODATA; /* the file was truncated since its length was asked for */
	}
	return 0;
}

static int load(const char *path, const char *device, int rank, int ranks)
{
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_region_info where = { .size = sizeof(where) };
	struct strait_context *ctx = NULL;
	struct strait_device *dev;
	struct strait_endpoint *file = NULL;
	struct strait_region *mem = NULL;
	uint32_t crc = 0, lowest, highest;
	void *at = NULL;
	int rc;

	if ((rc = strait_context_open(NULL, &ctx)) < 0 || (rc = strait_device_find(ctx, device, &dev)) < 0 ||
	    (rc = strait_file_open(ctx, path, O_RDONLY, 0, 0, &file)) < 0 || (rc = strait_file_info(file, &info)) < 0 ||
	    (rc = strait_region_alloc(dev, info.length ? info.length : 1, &mem)) < 0 ||
	    (rc = strait_region_info(mem, &where)) < 0)
		fprintf(stderr, "rank %d: %s: %s\n", rank, path, strerror(-rc));
	else if (strait_region_map(mem, &at) < 0)
		at = (void *)(uintptr_t)where.addr; /* memory of a GPU */
	rc = agree(rc);
	if (!rc) {
		rc = read_shares(file, mem, info.length, rank, ranks);
		if (rc)
			fprintf(stderr, "rank %d: cannot read %s: %s\n", rank, path, strerror(-rc));
		rc = agree(rc);
	}
	for (uint64_t start = 0, n = 0; !rc && start < info.length; start += SHARE, n++)
		if (MPI_Bcast((char *)at + start, (int)share_length(start, info.length), MPI_BYTE,
			      (int)(n % (uint64_t)ranks), MPI_COMM_WORLD))
			rc = -EIO;
	if (!rc)
		rc = agree(info.length ? strait_region_crc32c(mem, 0, info.length, &crc) : 0);
	if (!rc) {
		MPI_Allreduce(&crc, &lowest, 1, MPI_UINT32_T, MPI_MIN, MPI_COMM_WORLD);
		MPI_Allreduce(&crc, &highest, 1, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD);
		if (!rank)
			printf("%" PRIu64 " bytes on %d ranks, CRC-32C %08x%s\n", info.length, ranks, crc,
			       lowest == highest ? "" : ": the ranks DIFFER");
		rc = lowest == highest ? 0 : -EIO;
	}
	strait_region_close(mem);
	strait_endpoint_close(file);
	strait_context_close(ctx);
	return rc;
}

int main(int argc, char **argv)
{
	int rank, ranks, rc;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 2) {
		if (!rank)
			fprintf(stderr, "usage: mpirun -n N %s FILE [DEVICE]\n", argv[0]);
		MPI_Finalize();
		return 2;
	}
	rc = load(argv[1], argc > 2 ? argv[2] : "emu:0", rank, ranks);
	MPI_Finalize();
	return rc < 0;
}
