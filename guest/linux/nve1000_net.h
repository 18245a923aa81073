/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
#ifndef NVE1000_NET_H
#define NVE1000_NET_H

#include "nve1000.h"

/* nve1000_main.c */
int nve_up(struct nve *ne);
void nve_down(struct nve *ne);

/* nve1000_net.c */
void nve_net_init(struct nve *ne);
void nve_set_address(struct nve *ne);
void nve_set_filter(struct net_device *netdev);

#endif
