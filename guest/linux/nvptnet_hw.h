/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The interface between netvale's ptnet device and its guest: the header page,
 * the status blocks, and netmap's rings. Both sides write this memory, so the
 * reader checks it.
 */
#ifndef NVPTNET_HW_H
#define NVPTNET_HW_H

#include <linux/types.h>

/* PCI IDs of ivshmem, as in QEMU's ivshmem-doorbell. */
#define NVPT_PCI_VENDOR		0x1af4
#define NVPT_PCI_DEVICE		0x1110
#define NVPT_BAR_REGS		0
#define NVPT_BAR_MEMORY		2
#define NVPT_REG_DOORBELL	12

#define NVPT_MAGIC_LO		0x7470766e	/* "nvpt" */
#define NVPT_MAGIC_HI		0x0074656e	/* "net\0" */
#define NVPT_VERSION		1
#define NVPT_HEADER_BYTES	4096

#define NVPT_F_VNET_HDR		0x1

#define NVPT_S_LINK_UP		0x1
#define NVPT_S_RUNNING		0x2
#define NVPT_S_NEEDS_RESET	0x4

#define NVPT_CMD_START		1
#define NVPT_CMD_STOP		2

struct nvpt_header {
	__le32 magic[2];
	__le32 version;
	__le32 header_bytes;
	__le32 features;
	__le32 vectors;		/* tx rings, rx rings, one for commands */
	__le32 tx_rings;
	__le32 rx_rings;
	__le32 tx_slots;
	__le32 rx_slots;
	__le32 buf_size;
	__le32 num_bufs;
	u8 mac[8];
	__le32 mtu;
	__le32 host_peer;
	__le64 csb_atok;	/* offsets from the start of the memory */
	__le64 csb_ktoa;
	__le64 ring_pool;
	__le32 ring_size;
	__le32 reserved;
	__le64 buf_pool;
	__le64 if_pool;
	__le64 total;
	u8 pad[256 - 120];
	/* written by the host */
	__le32 status;
	__le32 answered;
	__le32 result;
	__le32 extra_bufs;
	__le64 nifp;
	u8 pad2[40];
	/* written by the guest */
	__le32 command;
	__le32 number;
	__le32 wanted;
	__le32 wanted_bufs;
};

/* netmap's nm_csb_atok: written by the guest. */
struct nvpt_atok {
	__le32 head;
	__le32 cur;
	__le32 need_kick;
	__le32 sync_flags;
	u8 pad[48];
};

/* netmap's nm_csb_ktoa: written by the host. */
struct nvpt_ktoa {
	__le32 hwcur;
	__le32 hwtail;
	__le32 need_kick;
	u8 pad[52];
};

/* netmap's netmap_slot. */
struct nvpt_slot {
	__le32 buf_idx;
	__le16 len;
	__le16 flags;
	__le64 ptr;
};

#define NVPT_SLOT_MOREFRAG	0x20
#define NVPT_RING_HEADER	256	/* netmap_ring up to its slots */
#define NVPT_RESERVED_BUFS	2
#define NVPT_MAX_FRAGS		64	/* slots of one frame */
#define NVPT_MAX_SLOTS		16384
#define NVPT_MAX_RINGS		16
#define NVPT_VNET_HDR_LEN	12

#endif
