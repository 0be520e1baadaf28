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

/* @result: bytes, or a negative errno. */
DEFINE_EVENT(strait_io_class, strait_io,
	TP_PROTO(u32 handle, u32 op, u64 file_offset, u64 region_offset, u64 length, s64 result),
	TP_ARGS(handle, op, file_offset, region_offset, length, result));

/* @result: STRAIT_REASON_* of a request that was refused. */
DEFINE_EVENT(strait_io_class, strait_refuse,
	TP_PROTO(u32 handle, u32 op, u64 file_offset, u64 region_offset, u64 length, s64 result),
	TP_ARGS(handle, op, file_offset, region_offset, length, result));

TRACE_EVENT(strait_attach,
	TP_PROTO(const char *pci, int rc, u32 reason),
	TP_ARGS(pci, rc, reason),
	TP_STRUCT__entry(
		__array(char, pci, 16)
		__field(int, rc)
		__field(u32, reason)
	),
	TP_fast_assign(
		strscpy(__entry->pci, pci, sizeof(__entry->pci));
		__entry->rc = rc;
		__entry->reason = reason;
	),
	TP_printk("pci=%s rc=%d reason=%u", __entry->pci, __entry->rc, __entry->reason)
);

/* @reset: result of the reset; -ENODEV: none was tried. */
TRACE_EVENT(strait_detach,
	TP_PROTO(const char *pci, int reset),
	TP_ARGS(pci, reset),
	TP_STRUCT__entry(
		__array(char, pci, 16)
		__field(int, reset)
	),
	TP_fast_assign(
		strscpy(__entry->pci, pci, sizeof(__entry->pci));
		__entry->reset = reset;
	),
	TP_printk("pci=%s reset=%d", __entry->pci, __entry->reset)
);

TRACE_EVENT(strait_map,
	TP_PROTO(const char *pci, u32 handle, u32 region, u64 length, u32 runs, int rc),
	TP_ARGS(pci, handle, region, length, runs, rc),
	TP_STRUCT__entry(
		__array(char, pci, 16)
		__field(u32, handle)
		__field(u32, region)
		__field(u64, length)
		__field(u32, runs)
		__field(int, rc)
	),
	TP_fast_assign(
		strscpy(__entry->pci, pci, sizeof(__entry->pci));
		__entry->handle = handle;
		__entry->region = region;
		__entry->length = length;
		__entry->runs = runs;
		__entry->rc = rc;
	),
	TP_printk("pci=%s handle=%u region=%u length=%llu runs=%u rc=%d", __entry->pci,
		  __entry->handle, __entry->region, __entry->length, __entry->runs, __entry->rc)
);

/* @revoked: the memory was revoked; else the program or the device's loss unmapped it. */
TRACE_EVENT(strait_unmap,
	TP_PROTO(const char *pci, u32 handle, u64 length, bool revoked),
	TP_ARGS(pci, handle, length, revoked),
	TP_STRUCT__entry(
		__array(char, pci, 16)
		__field(u32, handle)
		__field(u64, length)
		__field(bool, revoked)
	),
	TP_fast_assign(
		strscpy(__entry->pci, pci, sizeof(__entry->pci));
		__entry->handle = handle;
		__entry->length = length;
		__entry->revoked = revoked;
	),
	TP_printk("pci=%s handle=%u length=%llu revoked=%d", __entry->pci, __entry->handle,
		  __entry->length, __entry->revoked)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH strait
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
