/* SPDX-License-Identifier: GPL-2.0 OR MIT */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM strait

#if !defined(STRAIT_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define STRAIT_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(strait_import,
	TP_PROTO(u32 handle, u32 kind, u64 length, int rc),
	TP_ARGS(handle, kind, length, rc),
	TP_STRUCT__entry(
		__field(u32, handle)
		__field(u32, kind)
		__field(u64, length)
		__field(int, rc)
	),
	TP_fast_assign(
		__entry->handle = handle;
		__entry->kind = kind;
		__entry->length = length;
		__entry->rc = rc;
	),
	TP_printk("handle=%u kind=%u length=%llu rc=%d", __entry->handle, __entry->kind,
		  __entry->length, __entry->rc)
);

TRACE_EVENT(strait_revoke,
	TP_PROTO(u32 handle, u32 kind, u64 length),
	TP_ARGS(handle, kind, length),
	TP_STRUCT__entry(
		__field(u32, handle)
		__field(u32, kind)
		__field(u64, length)
	),
	TP_fast_assign(
		__entry->handle = handle;
		__entry->kind = kind;
		__entry->length = length;
	),
	TP_printk("handle=%u kind=%u length=%llu", __entry->handle, __entry->kind, __entry->length)
);

DECLARE_EVENT_CLASS(strait_io_class,
	TP_PROTO(u32 handle, u32 op, u64 file_offset, u64 region_offset, u64 length, s64 result),
	TP_ARGS(handle, op, file_offset, region_offset, length, result),
	TP_STRUCT__entry(
		__field(u32, handle)
		__field(u32, op)
		__field(u64, file_offset)
		__field(u64, region_offset)
		__field(u64, length)
		__field(s64, result)
	),
	TP_fast_assign(
		__entry->handle = handle;
		__entry->op = op;
		__entry->file_offset = file_offset;
		__entry->region_offset = region_offset;
		__entry->length = length;
		__entry->result = result;
	),
	TP_printk("handle=%u op=%s file_offset=%llu region_offset=%llu length=%llu result=%lld",
		  __entry->handle, __entry->op ? "write" : "read", __entry->file_offset,
		  __entry->region_offset, __entry->length, __entry->result)
);

/* @result: bytes, a negative errno, */
DEFINE_EVENT(strait_io_class, strait_io,
	TP_PROTO(u32 handle, u32 op, u64 file_offset, u64 region_offset, u64 length, s64 result),
	TP_ARGS(handle, op, file_offset, region_offset, length, result));

/* or STRAIT_REASON_* of what was not begun. */
DEFINE_EVENT(strait_io_class, strait_refuse,
	TP_PROTO(u32 handle, u32 op, u64 file_offset, u64 region_offset, u64 length, s64 result),
	TP_ARGS(handle, op, file_offset, region_offset, length, result));

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH strait
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
