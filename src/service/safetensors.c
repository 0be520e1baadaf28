/* SPDX-License-Identifier: MIT */
/* An open model file and what it says about its tensors. */
#include "service/safetensors.h"

#include <stdlib.h>

#include "base/util.h"

#define DEFAULT_ALIGN 256
#define MAX_ALIGN MIB(2)

STRAIT_API int strait_safetensors_open(struct strait_context *ctx, struct strait_endpoint *ep, uint64_t align,
				       char *why, size_t why_len, struct strait_safetensors **ret)
{
	struct strait_safetensors *st;
	int rc;

	if (!ctx || !ep || !ret || (align && (!is_pow2(align) || align > MAX_ALIGN)))
		return -EINVAL;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->ctx = ctx;
	st->ep = ep;
	st->align = align ? align : DEFAULT_ALIGN;
	st->why = why;
	st->why_len = why_len;
	rc = safetensors_read_header(st);
	st->why = NULL;
	if (rc) {
		strait_safetensors_close(st);
		return rc;
	}
	*ret = st;
	return 0;
}

STRAIT_API void strait_safetensors_close(struct strait_safetensors *st)
{
	if (!st)
		return;
	for (unsigned int i = 0; i < st->n; i++)
		free(st->tensors[i].name);
	for (unsigned int i = 0; i < st->n_meta; i++) {
		free(st->meta[i].key);
		free(st->meta[i].value);
	}
	free(st->tensors);
	free(st->meta);
	free(st);
}

STRAIT_API int strait_safetensors_count(const struct strait_safetensors *st)
{
	return st ? (int)st->n : -EINVAL;
}

STRAIT_API uint64_t strait_safetensors_bytes(const struct strait_safetensors *st)
{
	return st ? st->bytes : 1;
}

STRAIT_API int strait_safetensors_tensor(const struct strait_safetensors *st, unsigned int index,
					 struct strait_tensor_info *info)
{
	struct strait_tensor_info i = { .size = sizeof(i) };
	const struct tensor *t;

	if (!st || !info)
		return -EINVAL;
	if (index >= st->n)
		return -ENOENT;
	t = &st->tensors[index];
	i.name = t->name;
	memcpy(i.dtype, t->dtype, sizeof(i.dtype));
	i.element_bits = t->bits;
	i.rank = t->rank;
	memcpy(i.shape, t->shape, sizeof(i.shape));
	i.length = t->end - t->begin;
	i.file_offset = st->data + t->begin;
	i.region_offset = t->region_offset;
	return struct_out(info, &i, sizeof(i), STRAIT_TENSOR_INFO_SIZE_V1);
}

STRAIT_API int strait_safetensors_find(const struct strait_safetensors *st, const char *name)
{
	if (!st || !name)
		return -EINVAL;
	for (unsigned int i = 0; i < st->n; i++)
		if (!strcmp(st->tensors[i].name, name))
			return (int)i;
	return -ENOENT;
}

STRAIT_API const char *strait_safetensors_metadata(const struct strait_safetensors *st, const char *key)
{
	for (unsigned int i = 0; st && key && i < st->n_meta; i++)
		if (!strcmp(st->meta[i].key, key))
			return st->meta[i].value;
	return NULL;
}
