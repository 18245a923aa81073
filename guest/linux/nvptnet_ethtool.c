// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* ethtool -i, -l, -g, -S, -c, -C, -T; offloads (-k) follow from features. */
#include <linux/ethtool.h>

#include "nvptnet.h"

static struct nvpt *nvpt_of(struct net_device *netdev)
{
	return *(struct nvpt **)netdev_priv(netdev);
}

static void nvpt_get_drvinfo(struct net_device *netdev,
			     struct ethtool_drvinfo *info)
{
	struct nvpt *np = nvpt_of(netdev);

	strscpy(info->driver, NVPT_NAME, sizeof(info->driver));
	strscpy(info->bus_info, pci_name(np->pdev), sizeof(info->bus_info));
}

static void nvpt_get_channels(struct net_device *netdev,
			      struct ethtool_channels *ch)
{
	struct nvpt *np = nvpt_of(netdev);

	ch->max_tx = np->num_tx;
	ch->max_rx = np->num_rx;
	ch->max_other = 1;
	ch->tx_count = np->num_tx;
	ch->rx_count = np->num_rx;
	ch->other_count = 1;
}

static void nvpt_get_ringparam(struct net_device *netdev,
			       struct ethtool_ringparam *ring
			       NVPT_RINGPARAM_MORE)
{
	struct nvpt *np = nvpt_of(netdev);

	ring->tx_max_pending = np->tx_slots;
	ring->tx_pending = np->tx_slots;
	ring->rx_max_pending = np->rx_slots;
	ring->rx_pending = np->rx_slots;
}

static int nvpt_get_coalesce(struct net_device *netdev,
			     struct ethtool_coalesce *c NVPT_COALESCE_MORE)
{
	c->rx_coalesce_usecs = nvpt_of(netdev)->rx_usecs;
	return 0;
}

static int nvpt_set_coalesce(struct net_device *netdev,
			     struct ethtool_coalesce *c NVPT_COALESCE_MORE)
{
	if (c->rx_coalesce_usecs > USEC_PER_SEC / 10)
		return -EINVAL;
	WRITE_ONCE(nvpt_of(netdev)->rx_usecs, c->rx_coalesce_usecs);
	return 0;
}

#define NVPT_STAT(field) { #field, offsetof(struct nvpt_stats, field) }
static const struct {
	const char *name;
	size_t at;
} nvpt_stat_fields[] = {
	NVPT_STAT(packets), NVPT_STAT(bytes), NVPT_STAT(dropped),
	NVPT_STAT(errors), NVPT_STAT(kicks), NVPT_STAT(interrupts),
	NVPT_STAT(stops),
};

static int nvpt_get_sset_count(struct net_device *netdev, int set)
{
	struct nvpt *np = nvpt_of(netdev);

	if (set != ETH_SS_STATS)
		return -EOPNOTSUPP;
	return (np->num_tx + np->num_rx) * ARRAY_SIZE(nvpt_stat_fields);
}

static void nvpt_get_strings(struct net_device *netdev, u32 set, u8 *at)
{
	struct nvpt *np = nvpt_of(netdev);
	u32 i, k;

	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < np->num_tx + np->num_rx; i++) {
		bool tx = i < np->num_tx;

		for (k = 0; k < ARRAY_SIZE(nvpt_stat_fields); k++) {
			snprintf(at, ETH_GSTRING_LEN, "%s%u_%s", tx ? "tx" : "rx",
				 tx ? i : i - np->num_tx, nvpt_stat_fields[k].name);
			at += ETH_GSTRING_LEN;
		}
	}
}

static void nvpt_get_stats(struct net_device *netdev,
			   struct ethtool_stats *stats, u64 *data)
{
	struct nvpt *np = nvpt_of(netdev);
	u32 i, k;

	for (i = 0; i < np->num_tx + np->num_rx; i++) {
		const u8 *s = (const u8 *)&nvpt_ring_at(np, i)->stats;

		for (k = 0; k < ARRAY_SIZE(nvpt_stat_fields); k++)
			*data++ = *(const u64 *)(s + nvpt_stat_fields[k].at);
	}
}

static int nvpt_get_link_ksettings(struct net_device *netdev,
				   struct ethtool_link_ksettings *cmd)
{
	/* Memory has no speed, but programs expect a value. */
	cmd->base.speed = SPEED_UNKNOWN;
	cmd->base.duplex = DUPLEX_FULL;
	cmd->base.port = PORT_OTHER;
	cmd->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

const struct ethtool_ops nvpt_ethtool_ops = {
	.supported_coalesce_params = ETHTOOL_COALESCE_RX_USECS,
	.get_drvinfo = nvpt_get_drvinfo,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = nvpt_get_link_ksettings,
	.get_channels = nvpt_get_channels,
	.get_ringparam = nvpt_get_ringparam,
	.get_coalesce = nvpt_get_coalesce,
	.set_coalesce = nvpt_set_coalesce,
	.get_sset_count = nvpt_get_sset_count,
	.get_strings = nvpt_get_strings,
	.get_ethtool_stats = nvpt_get_stats,
	.get_ts_info = ethtool_op_get_ts_info,
};
