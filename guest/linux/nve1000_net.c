// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The network interface: up and down, addresses, MTU, counters, ethtool. */
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>

#include "nve1000_net.h"

/* Unit of ITR in ns. */
#define NVE_ITR_NS	256
#define NVE_ITR_MOST	0xffff
#define NVE_TCP_HEADER	60

static int nve_open(struct net_device *netdev)
{
	return nve_up(netdev_priv(netdev));
}

static int nve_stop(struct net_device *netdev)
{
	nve_down(netdev_priv(netdev));
	return 0;
}

void nve_set_address(struct nve *ne)
{
	const u8 *a = ne->netdev->dev_addr;

	nve_write(ne, NVE_RAL,
		  a[0] | a[1] << 8 | a[2] << 16 | (u32)a[3] << 24);
	nve_write(ne, NVE_RAH, a[4] | a[5] << 8 | NVE_RAH_AV);
}

/* Accepts all multicast if any is requested: the stack filters it. */
void nve_set_filter(struct net_device *netdev)
{
	struct nve *ne = netdev_priv(netdev);
	u32 rctl = NVE_RCTL_EN | NVE_RCTL_BAM | NVE_RCTL_SECRC;

	if (netdev->flags & IFF_PROMISC)
		rctl |= NVE_RCTL_UPE | NVE_RCTL_MPE;
	if (netdev->flags & IFF_ALLMULTI || !netdev_mc_empty(netdev))
		rctl |= NVE_RCTL_MPE;
	if (!netdev_uc_empty(netdev))
		rctl |= NVE_RCTL_UPE;
	if (netdev->mtu > ETH_DATA_LEN)
		rctl |= NVE_RCTL_LPE;
	nve_write(ne, NVE_RCTL, rctl);
}

static int nve_set_mac(struct net_device *netdev, void *addr)
{
	int err = eth_mac_addr(netdev, addr);

	if (!err && netif_running(netdev))
		nve_set_address(netdev_priv(netdev));
	return err;
}

static int nve_change_mtu(struct net_device *netdev, int mtu)
{
	netdev->mtu = mtu;
	if (netif_running(netdev))
		nve_set_filter(netdev);
	return 0;
}

static void nve_again(struct work_struct *work)
{
	struct nve *ne = container_of(work, struct nve, again);

	rtnl_lock();
	if (netif_running(ne->netdev)) {
		nve_down(ne);
		if (nve_up(ne))
			netdev_err(ne->netdev, "cannot restart the card\n");
	}
	rtnl_unlock();
}

static void nve_tx_timeout(struct net_device *netdev, unsigned int queue)
{
	struct nve *ne = netdev_priv(netdev);

	schedule_work(&ne->again);
}

/* A context descriptor has eight bits for each header offset. */
static netdev_features_t nve_features_check(struct sk_buff *skb,
					    struct net_device *netdev,
					    netdev_features_t features)
{
	if (skb->ip_summed == CHECKSUM_PARTIAL &&
	    skb_checksum_start_offset(skb) + NVE_TCP_HEADER > U8_MAX)
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	return vlan_features_check(skb, features);
}

static void nve_add_stats(const struct nve_stats *s, u64 *packets, u64 *bytes)
{
	unsigned int start;

	do {
		start = u64_stats_fetch_begin(&s->sync);
		*packets = s->packets;
		*bytes = s->bytes;
	} while (u64_stats_fetch_retry(&s->sync, start));
}

static void nve_get_stats64(struct net_device *netdev,
			    struct rtnl_link_stats64 *total)
{
	struct nve *ne = netdev_priv(netdev);

	nve_add_stats(&ne->tx.stats, &total->tx_packets, &total->tx_bytes);
	nve_add_stats(&ne->rx.stats, &total->rx_packets, &total->rx_bytes);
	total->tx_dropped = ne->tx.stats.dropped;
	total->rx_dropped = ne->rx.stats.dropped;
}

static const struct net_device_ops nve_netdev_ops = {
	.ndo_open = nve_open,
	.ndo_stop = nve_stop,
	.ndo_start_xmit = nve_xmit,
	.ndo_set_rx_mode = nve_set_filter,
	.ndo_set_mac_address = nve_set_mac,
	.ndo_change_mtu = nve_change_mtu,
	.ndo_tx_timeout = nve_tx_timeout,
	.ndo_features_check = nve_features_check,
	.ndo_get_stats64 = nve_get_stats64,
	.ndo_validate_addr = eth_validate_addr,
};

static void nve_get_drvinfo(struct net_device *netdev,
			    struct ethtool_drvinfo *info)
{
	struct nve *ne = netdev_priv(netdev);

	strscpy(info->driver, NVE_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(ne->pdev), sizeof(info->bus_info));
}

static void nve_get_ringparam(struct net_device *netdev,
			      struct ethtool_ringparam *ring
			      NVPT_RINGPARAM_MORE)
{
	struct nve *ne = netdev_priv(netdev);

	ring->tx_max_pending = ne->slots;
	ring->tx_pending = ne->slots;
	ring->rx_max_pending = ne->slots;
	ring->rx_pending = ne->slots;
}

static int nve_get_coalesce(struct net_device *netdev,
			    struct ethtool_coalesce *c NVPT_COALESCE_MORE)
{
	struct nve *ne = netdev_priv(netdev);

	c->rx_coalesce_usecs = ne->itr * NVE_ITR_NS / NSEC_PER_USEC;
	return 0;
}

static int nve_set_coalesce(struct net_device *netdev,
			    struct ethtool_coalesce *c NVPT_COALESCE_MORE)
{
	struct nve *ne = netdev_priv(netdev);

	if (c->rx_coalesce_usecs > NVE_ITR_MOST * NVE_ITR_NS / NSEC_PER_USEC)
		return -EINVAL;
	ne->itr = c->rx_coalesce_usecs * NSEC_PER_USEC / NVE_ITR_NS;
	if (netif_running(netdev))
		nve_write(ne, NVE_ITR, ne->itr);
	return 0;
}

static const char nve_names[][ETH_GSTRING_LEN] = {
	"tail_writes", "interrupts",
};

static int nve_get_sset_count(struct net_device *netdev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(nve_names) : -EOPNOTSUPP;
}

static void nve_get_strings(struct net_device *netdev, u32 set, u8 *data)
{
	if (set == ETH_SS_STATS)
		memcpy(data, nve_names, sizeof(nve_names));
}

static void nve_get_ethtool_stats(struct net_device *netdev,
				  struct ethtool_stats *stats, u64 *data)
{
	struct nve *ne = netdev_priv(netdev);

	data[0] = READ_ONCE(ne->kicks);
	data[1] = READ_ONCE(ne->interrupts);
}

static const struct ethtool_ops nve_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS,
	.get_drvinfo = nve_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_ringparam = nve_get_ringparam,
	.get_coalesce = nve_get_coalesce,
	.set_coalesce = nve_set_coalesce,
	.get_sset_count = nve_get_sset_count,
	.get_strings = nve_get_strings,
	.get_ethtool_stats = nve_get_ethtool_stats,
};

void nve_net_init(struct nve *ne)
{
	struct net_device *netdev = ne->netdev;

	INIT_WORK(&ne->again, nve_again);
	u64_stats_init(&ne->tx.stats.sync);
	u64_stats_init(&ne->rx.stats.sync);
	nvpt_napi_add(netdev, &ne->napi, nve_poll);
	netdev->netdev_ops = &nve_netdev_ops;
	netdev->ethtool_ops = &nve_ethtool_ops;
	netdev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO |
			      NETIF_F_TSO6;
	netdev->features = netdev->hw_features | NETIF_F_HIGHDMA;
	netdev->vlan_features = netdev->hw_features;
	netdev->priv_flags |= IFF_UNICAST_FLT;
	/* Short packets are padded in place, and all are orphaned before they
	 * are sent.
	 */
	netdev->priv_flags &= ~IFF_TX_SKB_SHARING;
	netdev->min_mtu = ETH_MIN_MTU;
	netdev->max_mtu = NVE_MAX_MTU;
}
