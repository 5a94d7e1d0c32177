/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Metrics for the textfile collector of Prometheus's node_exporter, named after KubeVirt's
 * kubevirt_vmi_migration_*.
 */
#ifndef GODWIT_REPORT_METRICS_H
#define GODWIT_REPORT_METRICS_H

#include "base/err.h"
#include "report/report.h"

/**
 * metrics_write() - replace the file in one step: the collector never sees half of it
 * @path: FILE.prom, written as FILE.prom.tmp first, which the collector does not read
 * @qmp: the label, which tells one VM's metrics from another's
 * @outcome: NULL while the migration runs
 * Return: 0, or -errno with *e set (GW_USAGE).
 */
int metrics_write(const char *path, const char *qmp, const struct report *r,
		  const struct err *outcome, struct err *e);

#endif
