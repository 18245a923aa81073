// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The network interface: up and down, status of the host, counters. */
#include <linux/etherdevice.h>
#include <linux/rtnetlink.h>
#include <linux/virtio_net.h>

#include "nvptnet.h"

/* Pause before the next request to the host. */
#define NVPT_RETRY (2 * HZ)

static struct nvpt *nvpt_of(struct net_device *netdev)
{
	return *(struct nvpt **)netdev_priv(netdev);
}

/* Returns the netdev features that follow from a virtio-net header. */
static netdev_features_t nvpt_offloads(const struct nvpt *np)
{
	netdev_features_t f = NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 |
			      NETIF_F_TSO_ECN | NETIF_F_RXCSUM;

#ifdef VIRTIO_NET_HDR_GSO_UDP_L4
	f |= NETIF_F_GSO_UDP_L4;
#endif
	return np->features & NVPT_F_VNET_HDR ? f : 0;
}

/* Starts new rings, and frames on them. Under rtnl. */
int nvpt_net_up(struct nvpt *np)
{
	u32 features = np->features & NVPT_F_VNET_HDR;
	u32 i;
	int err = nvpt_command(np, NVPT_CMD_START, features, 0);

	if (err)
		return err;
	np->hdr_len = features ? NVPT_VNET_HDR_LEN : 0;
	nvpt_rings_restart(np);
	for (i = 0; i < np->num_tx; i++) {
		struct netdev_queue *queue = netdev_get_tx_queue(np->netdev, i);

		netdev_tx_reset_queue(queue);
		/*
		 * The host takes these in microseconds. With a lower limit,
		 * BQL stops the queue after each frame, and each costs an
		 * interrupt.
		 */
		netdev_queue_set_dql_min_limit(queue, NVPT_TX_LEAST);
	}
	for (i = 0; i < np->num_tx + np->num_rx; i++)
		napi_enable(&nvpt_ring_at(np, i)->napi);
	np->net_up = true;
	/* Frames may have arrived before the request for interrupts. */
	local_bh_disable();
	for (i = 0; i < np->num_rx; i++)
		napi_schedule(&np->rx[i].napi);
	local_bh_enable();
	netif_tx_start_all_queues(np->netdev);
	netif_carrier_on(np->netdev);
	return 0;
}

/* Stops the rings, which neither side then accesses. Under rtnl. */
void nvpt_net_down(struct nvpt *np)
{
	u32 i;

	if (!np->net_up)
		return;
	np->net_up = false;
	netif_carrier_off(np->netdev);
	netif_tx_disable(np->netdev);
	for (i = 0; i < np->num_rx; i++)
		hrtimer_cancel(&np->rx[i].timer);
	for (i = 0; i < np->num_tx + np->num_rx; i++)
		napi_disable(&nvpt_ring_at(np, i)->napi);
	for (i = 0; i < np->num_rx; i++)
		hrtimer_cancel(&np->rx[i].timer);
	/* A host that does not answer no longer uses the rings. */
	nvpt_command(np, NVPT_CMD_STOP, 0, 0);
}

static int nvpt_open(struct net_device *netdev)
{
	struct nvpt *np = nvpt_of(netdev);
	int err = 0;

	/* A program has the rings: the interface gets them at its close. */
	if (np->user == NVPT_USER_NET)
		err = nvpt_net_up(np);
	/* The link is down until an absent host returns. */
	if (err == -ETIMEDOUT) {
		schedule_delayed_work(&np->news, NVPT_RETRY);
		err = 0;
	}
	return err;
}

static int nvpt_stop(struct net_device *netdev)
{
	nvpt_net_down(nvpt_of(netdev));
	return 0;
}

static void nvpt_add_stats(const struct nvpt_stats *s, u64 *packets, u64 *bytes)
{
	unsigned int start;
	u64 p, b;

	do {
		start = u64_stats_fetch_begin(&s->sync);
		p = s->packets;
		b = s->bytes;
	} while (u64_stats_fetch_retry(&s->sync, start));
	*packets += p;
	*bytes += b;
}

static void nvpt_get_stats64(struct net_device *netdev,
			     struct rtnl_link_stats64 *total)
{
	struct nvpt *np = nvpt_of(netdev);
	u32 i;

	for (i = 0; i < np->num_tx; i++) {
		const struct nvpt_stats *s = &np->tx[i].stats;

		nvpt_add_stats(s, &total->tx_packets, &total->tx_bytes);
		total->tx_dropped += s->dropped;
		total->tx_errors += s->errors;
	}
	for (i = 0; i < np->num_rx; i++) {
		const struct nvpt_stats *s = &np->rx[i].stats;

		nvpt_add_stats(s, &total->rx_packets, &total->rx_bytes);
		total->rx_dropped += s->dropped;
		total->rx_errors += s->errors;
	}
}

static void nvpt_tx_timeout(struct net_device *netdev, unsigned int queue)
{
	struct nvpt *np = nvpt_of(netdev);

	netdev_warn(netdev, "queue %u: the host does not take frames\n", queue);
	np->reset = true;
	schedule_delayed_work(&np->news, 0);
}

static const struct net_device_ops nvpt_netdev_ops = {
	.ndo_open = nvpt_open,
	.ndo_stop = nvpt_stop,
	.ndo_start_xmit = nvpt_xmit,
	.ndo_get_stats64 = nvpt_get_stats64,
	.ndo_tx_timeout = nvpt_tx_timeout,
	.ndo_validate_addr = eth_validate_addr,
	.ndo_set_mac_address = eth_mac_addr,
};

/* Returns a ring with invalid data from the host, if there is one. */
static const struct nvpt_ring *nvpt_broken(struct nvpt *np)
{
	u32 i;

	for (i = 0; i < np->num_tx + np->num_rx; i++)
		if (nvpt_ring_at(np, i)->broken)
			return nvpt_ring_at(np, i);
	return NULL;
}

/* Handles a change of the host's status, and broken rings. */
static void nvpt_look(struct nvpt *np)
{
	u32 status = le32_to_cpu(READ_ONCE(np->header->status));
	const struct nvpt_ring *broken = nvpt_broken(np);
	bool fresh = np->reset || status & NVPT_S_NEEDS_RESET || !np->net_up;

	if (!netif_running(np->netdev) || !netif_device_present(np->netdev) ||
	    np->user != NVPT_USER_NET)
		return;
	if (broken && np->net_up) {
		netdev_err(np->netdev, "%s: invalid slot %u of %u from the host: rings stop, and restart in %u s\n",
			   broken->name, broken->fault, broken->num_slots,
			   NVPT_RETRY / HZ);
		/* Not immediately, as the fault may recur. */
		nvpt_net_down(np);
		mod_delayed_work(system_wq, &np->news, NVPT_RETRY);
		return;
	}
	np->reset = false;
	if (fresh) {
		nvpt_net_down(np);
		if (nvpt_net_up(np)) {
			schedule_delayed_work(&np->news, NVPT_RETRY);
			return;
		}
	}
	if (status & NVPT_S_LINK_UP)
		netif_carrier_on(np->netdev);
	else
		netif_carrier_off(np->netdev);
}

void nvpt_news(struct work_struct *work)
{
	struct nvpt *np = container_of(to_delayed_work(work), struct nvpt, news);

	/* Removal of the device holds the lock and waits for this work. */
	if (!rtnl_trylock()) {
		if (!READ_ONCE(np->gone))
			schedule_delayed_work(&np->news, 1);
		return;
	}
	if (!np->gone)
		nvpt_look(np);
	rtnl_unlock();
}

struct nvpt *nvpt_net_alloc(struct pci_dev *pdev, u32 num_tx, u32 num_rx)
{
	struct nvpt *np = kzalloc(sizeof(*np), GFP_KERNEL);
	struct net_device *netdev;

	if (!np)
		return NULL;
	/* The device outlives its interface while a program has it open. */
	netdev = alloc_etherdev_mqs(sizeof(np), num_tx, num_rx);
	np->tx = kcalloc(num_tx, sizeof(*np->tx), GFP_KERNEL);
	np->rx = kcalloc(num_rx, sizeof(*np->rx), GFP_KERNEL);
	if (!netdev || !np->tx || !np->rx) {
		if (netdev)
			free_netdev(netdev);
		kfree(np->tx);
		kfree(np->rx);
		kfree(np);
		return NULL;
	}
	kref_init(&np->ref);
	np->pdev = pdev;
	np->netdev = netdev;
	*(struct nvpt **)netdev_priv(netdev) = np;
	SET_NETDEV_DEV(netdev, &pdev->dev);
	return np;
}

int nvpt_net_register(struct nvpt *np)
{
	struct net_device *netdev = np->netdev;
	u32 longest = nvpt_max_frame(np) - NVPT_VNET_HDR_LEN;
	u32 i;

	netdev->netdev_ops = &nvpt_netdev_ops;
	netdev->ethtool_ops = &nvpt_ethtool_ops;
	netdev->watchdog_timeo = 5 * HZ;
	netdev->hw_features = NETIF_F_SG | nvpt_offloads(np);
	netdev->features = netdev->hw_features | NETIF_F_HIGHDMA;
	netdev->vlan_features = netdev->hw_features;
	netdev->min_mtu = ETH_MIN_MTU;
	netdev->max_mtu = min_t(u32, longest - VLAN_ETH_HLEN, ETH_MAX_MTU);
	netdev->mtu = clamp(np->mtu, (u32)ETH_MIN_MTU, netdev->max_mtu);
	netif_set_tso_max_size(netdev, min_t(u32, longest, GSO_LEGACY_MAX_SIZE));
	if (is_valid_ether_addr(np->mac))
		eth_hw_addr_set(netdev, np->mac);
	else
		eth_hw_addr_random(netdev);
	for (i = 0; i < np->num_tx; i++)
		nvpt_napi_add(netdev, &np->tx[i].napi, nvpt_tx_poll);
	for (i = 0; i < np->num_rx; i++)
		nvpt_napi_add(netdev, &np->rx[i].napi, nvpt_rx_poll);
	netif_carrier_off(netdev);
	return register_netdev(netdev);
}
