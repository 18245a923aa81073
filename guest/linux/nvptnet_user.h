/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR BSD-2-Clause */
/*
 * /dev/nvptnetN: a ptnet device's rings for a program.
 *
 * open	takes the rings from the network interface; close gives them back.
 * mmap	the device's memory from offset 0: header page, status blocks, rings,
 *	buffers. It stays where it is; what is in it is void after a restart.
 */
#ifndef NVPTNET_USER_H
#define NVPTNET_USER_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct nvpt_start {
	__u32 features;		/* of those in the header */
	__u32 extra_bufs;	/* wanted; granted are those in the header */
};

/* Fresh rings. To be called before they are used. */
#define NVPT_IOC_START	_IOW('N', 1, struct nvpt_start)

/*
 * A descriptor for one ring (tx rings first, then rx rings), which behaves
 * like an eventfd: readable once the host has interrupted, 8 bytes written
 * ring the host's doorbell.
 */
#define NVPT_IOC_BELL	_IOW('N', 2, __u32)

#endif
