/* SPDX-License-Identifier: MIT */
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>

bool struct_room(const void *user, size_t first)
{
	size_t size;

	memcpy(&size, user, sizeof(size));
	return size >= first;
}

int struct_in(void *known, size_t known_size, const void *user, size_t first)
{
	size_t size;

	memcpy(&size, user, sizeof(size));
	if (size < first)
		return -EINVAL;
	if (size > known_size) {
		const unsigned char *tail = (const unsigned char *)user + known_size;

		for (size_t i = 0; i < size - known_size; i++)
			if (tail[i])
				return -E2BIG;
		size = known_size;
	}
	memset(known, 0, known_size);
	memcpy(known, user, size);
	memcpy(known, &known_size, sizeof(known_size));
	return 0;
}

int struct_out(void *user, const void *known, size_t known_size, size_t first)
{
	size_t size;

	memcpy(&size, user, sizeof(size));
	if (size < first)
		return -EINVAL;
	if (size > known_size) {
		memset((unsigned char *)user + known_size, 0, size - known_size);
		size = known_size;
	}
	memcpy((unsigned char *)user + sizeof(size), (const unsigned char *)known + sizeof(size), size - sizeof(size));
	return 0;
}

/* Walks the table by slot, so that an operation added to the struct is never forgotten here. */
void ops_overlay(void *table, const void *defaults, const void *has, size_t size)
{
	typedef void (*slot_fn)(void);
	const slot_fn none = NULL;

	for (size_t at = 0; at < size; at += sizeof(none)) {
		const char *slot = (const char *)has + at;

		if (!memcmp(slot, &none, sizeof(none)))
			slot = (const char *)defaults + at;
		memcpy((char *)table + at, slot, sizeof(none));
	}
}

void str_copy(char *dst, size_t size, const char *src)
{
	size_t n = strlen(src);

	if (n >= size)
		n = size - 1;
	memcpy(dst, src, n);
	dst[n] = '\0';
}

void str_format(char *dst, size_t size, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	if (vsnprintf(dst, size, fmt, ap) < 0 && size)
		dst[0] = '\0';
	va_end(ap);
}
