/* SPDX-License-Identifier: MIT */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

/* A table whose columns are as wide as their widest cell. A heading that starts with '>' aligns its column right. */

#include <stdio.h>

enum { TABLE_COLS = 40 };

struct table {
	unsigned int cols, cells;
	const char *head[TABLE_COLS];
	char **cell;
};

void table_begin(struct table *t, ...) __attribute__((sentinel)); /* headings, then NULL */
void table_column(struct table *t, const char *head);		  /* one more, before the first cell */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_print(struct table *t, FILE *out, unsigned int indent);
void table_free(struct table *t);

#endif
