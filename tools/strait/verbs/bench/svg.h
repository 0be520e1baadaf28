/* SPDX-License-Identifier: MIT */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

/* A chart as SVG: throughput over block size or a count, one line for each series; bars where there is one x. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { PLOT_SERIES = 8, PLOT_POINTS = 32 };

struct plot_series {
	char name[64];
	unsigned int n;
	struct {
		uint64_t x; /* bytes or a count, drawn on a logarithmic axis */
		double y;
	} point[PLOT_POINTS]; /* rising x */
};

struct plot {
	char title[256];
	char subtitle[256];
	const char *x_label;
	bool x_counts; /* numbers, not sizes */
	const char *y_label;
	unsigned int n;
	struct plot_series series[PLOT_SERIES];
};

void plot_write(const struct plot *p, FILE *out);

#endif
