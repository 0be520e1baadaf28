/* SPDX-License-Identifier: MIT */
/* The example of docs/concepts.md, word for word: a whole file into device memory. */
#include <fcntl.h>
#include <stdio.h>
#include <strait/strait.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_context *ctx = NULL;
	struct strait_device *dev;
	struct strait_endpoint *file = NULL;
	struct strait_region *mem = NULL;
	ssize_t rc;

	if (argc != 2) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	if ((rc = strait_context_open(NULL, &ctx)) < 0 ||
	    (rc = strait_device_at(ctx, 0, &dev)) < 0 || /* cuda:0, or emu:0 where there is no GPU */
	    (rc = strait_file_open(ctx, argv[1], O_RDONLY, 0, 0, &file)) < 0 ||
	    (rc = strait_file_info(file, &info)) < 0 || (rc = strait_region_alloc(dev, info.length, &mem)) < 0 ||
	    (rc = strait_read(file, 0, mem, 0, info.length)) < 0)
		fprintf(stderr, "%s: %s\n", argv[1], strerror((int)-rc));
	else
		printf("%zd bytes in device memory\n", rc);
	strait_region_close(mem);
	strait_endpoint_close(file);
	strait_context_close(ctx);
	return rc < 0;
}
