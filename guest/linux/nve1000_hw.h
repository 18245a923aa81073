/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The interface between netvale's e1000 and its driver: the registers of the
 * 82540EM that the driver uses (Intel 317453), and the status block.
 */
#ifndef NVE1000_HW_H
#define NVE1000_HW_H

#include <linux/bits.h>
#include <linux/types.h>

#define NVE_PCI_VENDOR		0x8086
#define NVE_PCI_DEVICE		0x100e
/* The subsystem ID of a card with a status block. */
#define NVE_SUBSYSTEM_CSB	0x1103

#define NVE_CTRL		0x0000
#define NVE_CTRL_ASDE		BIT(5)
#define NVE_CTRL_SLU		BIT(6)
#define NVE_CTRL_RST		BIT(26)
#define NVE_STATUS		0x0008
#define NVE_STATUS_LU		BIT(1)
#define NVE_ICR			0x00c0
#define NVE_ITR			0x00c4	/* units of 256 ns */
#define NVE_IMS			0x00d0
#define NVE_IMC			0x00d8
#define NVE_INT_TXDW		BIT(0)
#define NVE_INT_LSC		BIT(2)
#define NVE_INT_RXT0		BIT(7)
#define NVE_INT_ALL		(NVE_INT_TXDW | NVE_INT_LSC | NVE_INT_RXT0)
#define NVE_RCTL		0x0100
#define NVE_RCTL_EN		BIT(1)
#define NVE_RCTL_UPE		BIT(3)
#define NVE_RCTL_MPE		BIT(4)
#define NVE_RCTL_LPE		BIT(5)
#define NVE_RCTL_BAM		BIT(15)
#define NVE_RCTL_SECRC		BIT(26)
#define NVE_TCTL		0x0400
#define NVE_TCTL_START		(BIT(1) | BIT(3) | 0x0f << 4 | 0x40 << 12)
#define NVE_TIPG		0x0410
#define NVE_TIPG_GAPS		(10 | 8 << 10 | 6 << 20)
#define NVE_RDBAL		0x2800
#define NVE_RDBAH		0x2804
#define NVE_RDLEN		0x2808
#define NVE_RDT			0x2818
#define NVE_TDBAL		0x3800
#define NVE_TDBAH		0x3804
#define NVE_TDLEN		0x3808
#define NVE_TDT			0x3818
#define NVE_RAL			0x5400
#define NVE_RAH			0x5404
#define NVE_RAH_AV		BIT(31)
#define NVE_CSBAL		0x2830
#define NVE_CSBAH		0x2834

/* A descriptor of either ring. */
struct nve_desc {
	__le64 addr;
	__le64 word;
};

/* Data descriptors: bits of the second word. */
#define NVE_TXD_DATA		BIT_ULL(20)
#define NVE_TXD_EOP		BIT_ULL(24)
#define NVE_TXD_IFCS		BIT_ULL(25)
#define NVE_TXD_TSE		BIT_ULL(26)
#define NVE_TXD_RS		BIT_ULL(27)
#define NVE_TXD_DEXT		BIT_ULL(29)
#define NVE_TXD_IXSM		BIT_ULL(40)
#define NVE_TXD_TXSM		BIT_ULL(41)
/* Context descriptors: bits of the second word. */
#define NVE_TXC_TCP		BIT_ULL(24)
#define NVE_TXC_IPV4		BIT_ULL(25)
/* Both rings: descriptor done. Receive ring: end of a packet. */
#define NVE_DD			BIT_ULL(32)
#define NVE_RXD_EOP		BIT_ULL(33)

/* netmap's nm_csb_atok: written by the guest. */
struct nve_atok {
	__le32 head;
	__le32 cur;
	__le32 need_kick;
	__le32 sync_flags;
	u8 pad[48];
};

/* netmap's nm_csb_ktoa: written by the host. */
struct nve_ktoa {
	__le32 hwcur;
	__le32 hwtail;
	__le32 need_kick;
	u8 pad[52];
};

struct nve_csb {
	struct nve_atok tx_guest;
	struct nve_atok rx_guest;
	struct nve_ktoa tx_host;
	struct nve_ktoa rx_host;
	__le32 causes;		/* ICR has causes to read */
};

#endif
