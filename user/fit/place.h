/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The place of a device in the guest: a name that both ends find for the same device, whatever ids
 * the operator chose and wherever it is in QEMU's tree of objects. "pcie.0/02.0/00.0": function 0
 * of slot 0 on the bus behind slot 2; "pcie.0/1f.0/isa-serial#1": the second of its kind there.
 */
#ifndef GODWIT_PLACE_H
#define GODWIT_PLACE_H

#include "qom/qom.h"

/**
 * place_all() - name the places of all objects
 * A PCI device is named by its address, a device on another bus by its address there if its
 * properties have one (scsi-id, nr, unit ...), everything else by its type and its number among its
 * kind. Pure.
 * Return: t->n names, for places_free(). NULL: out of memory.
 */
char **place_all(const struct qom *t);
/*
 * The type, but one type for both variants of an interrupt controller: KVM's in the kernel has a
 * type of its own. The variants migrate into each other, and a guest sees no difference.
 */
const char *place_type(const char *type);
void places_free(char **places, const struct qom *t);

#endif
