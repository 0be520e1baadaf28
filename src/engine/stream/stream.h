/* SPDX-License-Identifier: MIT */
#ifndef ENGINE_STREAM_STREAM_H
#define ENGINE_STREAM_STREAM_H

#include <strait/stream.h>

#include "engine/transfer/transfer.h"

/* @native is used if @import is set, a new stream is made otherwise. */
int stream_open(struct strait_device *dev, bool import, void *native, struct strait_stream **ret);
void stream_close(struct strait_stream *s);
void stream_detach(struct strait_stream *s);
int stream_call(struct strait_stream *s, strait_stream_fn *fn, void *arg);
int stream_transfer(struct strait_stream *s, const struct strait_stream_transfer *t);
int stream_wait(struct strait_stream *s, int64_t timeout_ns);
struct strait_context *stream_context(const struct strait_stream *s);

#endif
