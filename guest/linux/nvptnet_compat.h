/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Functions that differ between kernels from 5.10 on. */
#ifndef NVPTNET_COMPAT_H
#define NVPTNET_COMPAT_H

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/netdevice.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 15, 0)
static inline void eth_hw_addr_set(struct net_device *dev, const u8 *addr)
{
	ether_addr_copy(dev->dev_addr, addr);
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 19, 0)
#define netif_set_tso_max_size(dev, size) netif_set_gso_max_size(dev, size)
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 0, 0)
#define skb_tcp_all_headers(skb) \
	(skb_transport_offset(skb) + tcp_hdrlen(skb))
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#define nvpt_napi_add(dev, napi, poll) \
	netif_napi_add(dev, napi, poll, NAPI_POLL_WEIGHT)
#else
#define nvpt_napi_add(dev, napi, poll) netif_napi_add(dev, napi, poll)
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 17, 0)
#define NVPT_RINGPARAM_MORE
#else
#define NVPT_RINGPARAM_MORE \
	, struct kernel_ethtool_ringparam *kernel, \
	struct netlink_ext_ack *extack
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 15, 0)
#define NVPT_COALESCE_MORE
#else
#define NVPT_COALESCE_MORE \
	, struct kernel_ethtool_coalesce *kernel, \
	struct netlink_ext_ack *extack
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 13, 0)
static inline void
netdev_queue_set_dql_min_limit(struct netdev_queue *queue, unsigned int limit)
{
#ifdef CONFIG_BQL
	queue->dql.min_limit = limit;
#endif
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define timer_delete_sync(timer) del_timer_sync(timer)
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void
hrtimer_setup(struct hrtimer *timer,
	      enum hrtimer_restart (*function)(struct hrtimer *),
	      clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

#endif
