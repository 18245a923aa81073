/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * /dev/nvptnetN: a ptnet device's rings for a program.
 *
 * open	takes the rings from the network interface; close returns them.
 * mmap	the device's memory from offset 0: header page, status blocks, rings,
 *	buffers. It stays in place; its contents are invalid after a restart.
 */
#ifndef NVPTNET_USER_H
#define NVPTNET_USER_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct nvpt_start {
	__u32 features;		/* requested, of those in the header */
	__u32 extra_bufs;	/* requested; granted: see the header */
};

/* Starts new rings. Must be called before they are used. */
#define NVPT_IOC_START	_IOW('N', 1, struct nvpt_start)

/*
 * Returns a descriptor for one ring (tx rings first, then rx rings), which
 * behaves like an eventfd: it is readable once the host has interrupted, and a
 * write of 8 bytes rings the host's doorbell.
 */
#define NVPT_IOC_BELL	_IOW('N', 2, __u32)

#endif
