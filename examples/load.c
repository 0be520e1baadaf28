/* SPDX-License-Identifier: MIT */
/* The example of the README: a whole file into device memory. */
#include <fcntl.h>
#include <stdio.h>
#include <strait/strait.h>

int main(int argc, char **argv)
{
	struct strait_file_info info = { .size = sizeof(info) };
	struct strait_context *ctx;
	struct strait_device *dev;
	struct strait_endpoint *file;
	struct strait_region *mem;

	if (argc < 2 || strait_context_open(NULL, &ctx) || strait_device_at(ctx, 0, &dev) ||
	    strait_file_open(ctx, argv[1], O_RDONLY, 0, 0, &file) || strait_file_info(file, &info) ||
	    strait_region_alloc(dev, info.length, &mem))
		return 1;
	printf("%zd bytes in device memory\n", strait_read(file, 0, mem, 0, info.length));
	strait_region_close(mem);
	strait_endpoint_close(file);
	strait_context_close(ctx);
	return 0;
}
