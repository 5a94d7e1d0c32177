/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a device is in the guest: a name that both ends find for the same device, whatever ids the
 * operator chose and however QEMU's tree of objects has it. "pcie.0/02.0/00.0": function 0 of slot
 * 0 on the bus behind slot 2; "pcie.0/1f.0/isa-serial#1": the second of its kind there.
 */
#ifndef GODWIT_PLACE_H
#define GODWIT_PLACE_H

#include "fit/qom.h"

/**
 * place_all() - the places of all objects
 * PCI devices are named by their addresses, what is on another bus by its address there if its
 * properties have one (scsi-id, nr, unit ...), everything else by its type and its number among its
 * kind. Pure.
 * Return: t->n names, each to be freed, as is the array: places_free(). NULL: out of memory.
 */
char **place_all(const struct qom *t);
/*
 * With KVM's interrupt controllers in the kernel they are of other types; they migrate into each
 * other, and are one to a guest.
 */
const char *place_type(const char *type);
void places_free(char **places, const struct qom *t);

#endif
