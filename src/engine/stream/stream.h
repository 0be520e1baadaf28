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
struct strait_device *stream_device(const struct strait_stream *s);

/*
 * work.c: a worker calls @fn when all earlier work on the stream is complete, and later work waits until it has returned.
 * It may call the device's driver, on streams other than this one that are isolated. If the call fails, @fn is not
 * called. @before, unless NULL, is called by the submitter to put work of its own on the stream (stream_native()) directly
 * before.
 */
int stream_run_work(struct strait_stream *s, strait_stream_fn *before, strait_stream_fn *fn, void *arg);
struct dev_stream *stream_native(const struct strait_stream *s);

#endif
