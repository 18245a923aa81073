/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef NVPTNET_H
#define NVPTNET_H

#include <linux/hrtimer.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/rwsem.h>
#include <linux/u64_stats_sync.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "nvptnet_compat.h"
#include "nvptnet_hw.h"

#define NVPT_NAME "nvptnet"

/* Minimum of bytes in flight that BQL may not limit. */
#define NVPT_TX_LEAST 131072

struct nvpt;

/* Counters of a ring; one writer at a time. */
struct nvpt_stats {
	struct u64_stats_sync sync;
	u64 packets;
	u64 bytes;
	u64 dropped;	/* by the driver: no memory, or too long */
	u64 errors;	/* invalid data from the host */
	u64 kicks;	/* doorbells rung */
	u64 interrupts;
	u64 stops;	/* the queue was full */
};

/*
 * A ring. @head and @tail are private copies, checked: the slots from @head up
 * to @tail belong to the driver.
 */
struct nvpt_ring {
	struct nvpt *np;
	struct nvpt_atok *atok;
	struct nvpt_ktoa *ktoa;
	struct nvpt_slot *slots;
	u32 num_slots;
	u32 head;
	u32 tail;
	u32 done;		/* tx: first slot not yet completed */
	u32 *bytes;		/* tx: frame length, by the frame's last slot */
	u16 index;		/* among the rings of its direction */
	u16 vector;
	bool broken;		/* invalid index from the host: needs a reset */
	u32 fault;		/* that index */
	struct napi_struct napi;
	struct hrtimer timer;	/* rx: interrupt moderation */
	struct nvpt_stats stats;
	/* netmap mode: interrupts since the last read of the bell */
	atomic_t rung;
	wait_queue_head_t wait;
	char name[40];
};

enum nvpt_user {
	NVPT_USER_NET,		/* the rings are the network interface's */
	NVPT_USER_NETMAP,	/* a program's, through the character device */
};

/* A device. */
struct nvpt {
	struct kref ref;
	struct pci_dev *pdev;
	struct net_device *netdev;
	void __iomem *regs;
	void *mem;
	resource_size_t mem_start;
	resource_size_t mem_len;
	struct nvpt_header *header;

	/* copies of the header's fields, checked */
	u32 features;
	u32 num_tx;
	u32 num_rx;
	u32 tx_slots;
	u32 rx_slots;
	u32 vectors;
	u32 buf_size;
	u32 num_bufs;
	u32 mtu;
	u32 host_peer;
	u64 csb_atok;
	u64 csb_ktoa;
	u64 ring_pool;
	u32 ring_size;
	u64 buf_pool;
	u8 mac[ETH_ALEN];

	struct nvpt_ring *tx;
	struct nvpt_ring *rx;
	u32 wanted;		/* features in use */
	u32 hdr_len;
	u32 rx_usecs;
	bool net_up;		/* rings run for the network interface */
	enum nvpt_user user;	/* under rtnl */
	bool answers;		/* the last command was answered */

	struct mutex command_lock; /* one command at a time */
	u32 number;
	struct delayed_work news;
	bool reset;		/* requested by the tx watchdog */

	/* Taken for writing when the device goes away. */
	struct rw_semaphore gone_lock;
	bool gone;
	struct miscdevice misc;
	char misc_name[24];
	struct address_space *mapping;
	bool opened;
};

/* nvptnet_main.c */
int nvpt_command(struct nvpt *np, u32 command, u32 features, u32 extra_bufs);
void nvpt_put(struct nvpt *np);
void nvpt_ring_doorbell(struct nvpt *np, u32 vector);

/* nvptnet_ring.c */
void nvpt_rings_restart(struct nvpt *np);
netdev_tx_t nvpt_xmit(struct sk_buff *skb, struct net_device *netdev);
int nvpt_tx_poll(struct napi_struct *napi, int budget);
int nvpt_rx_poll(struct napi_struct *napi, int budget);
enum hrtimer_restart nvpt_rx_timer(struct hrtimer *timer);
u32 nvpt_max_frame(struct nvpt *np);

/* nvptnet_net.c */
struct nvpt *nvpt_net_alloc(struct pci_dev *pdev, u32 num_tx, u32 num_rx);
int nvpt_net_register(struct nvpt *np);
int nvpt_net_up(struct nvpt *np);
void nvpt_net_down(struct nvpt *np);
void nvpt_news(struct work_struct *work);

/* nvptnet_ethtool.c */
extern const struct ethtool_ops nvpt_ethtool_ops;

/* nvptnet_cdev.c */
int nvpt_cdev_register(struct nvpt *np);
void nvpt_cdev_unregister(struct nvpt *np);
void nvpt_cdev_interrupt(struct nvpt_ring *ring);

static inline struct nvpt_ring *nvpt_ring_at(struct nvpt *np, u32 i)
{
	return i < np->num_tx ? &np->tx[i] : &np->rx[i - np->num_tx];
}

static inline void nvpt_arm(struct nvpt_ring *ring)
{
	WRITE_ONCE(ring->atok->need_kick, cpu_to_le32(1));
	/* The host publishes, then reads need_kick; we do the reverse. */
	virt_mb();
}

static inline void nvpt_disarm(struct nvpt_ring *ring)
{
	WRITE_ONCE(ring->atok->need_kick, 0);
}

#endif
