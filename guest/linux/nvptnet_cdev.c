// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * /dev/nvptnetN: the rings for a netmap program. While it is open the network
 * interface has no carrier.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include <linux/rtnetlink.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>

#include "nvptnet.h"
#include "nvptnet_user.h"

void nvpt_cdev_interrupt(struct nvpt_ring *ring)
{
	atomic_inc(&ring->rung);
	wake_up_interruptible_poll(&ring->wait, EPOLLIN);
}

/* ---- bells: descriptors for a ring's interrupts and its doorbell ---- */

static ssize_t nvpt_bell_read(struct file *file, char __user *to, size_t len,
			      loff_t *pos)
{
	struct nvpt_ring *ring = file->private_data;
	u64 count;
	int err;

	if (len < sizeof(count))
		return -EINVAL;
	count = atomic_xchg(&ring->rung, 0);
	while (!count) {
		if (READ_ONCE(ring->np->gone))
			return -ENODEV;
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		err = wait_event_interruptible(ring->wait,
					       atomic_read(&ring->rung) ||
					       READ_ONCE(ring->np->gone));
		if (err)
			return err;
		count = atomic_xchg(&ring->rung, 0);
	}
	return copy_to_user(to, &count, sizeof(count)) ? -EFAULT : sizeof(count);
}

static ssize_t nvpt_bell_write(struct file *file, const char __user *from,
			       size_t len, loff_t *pos)
{
	struct nvpt_ring *ring = file->private_data;
	struct nvpt *np = ring->np;
	ssize_t done = -ENODEV;

	if (len != sizeof(u64))
		return -EINVAL;
	down_read(&np->gone_lock);
	if (!np->gone) {
		ring->stats.kicks++;
		nvpt_ring_doorbell(np, ring->vector);
		done = len;
	}
	up_read(&np->gone_lock);
	return done;
}

static __poll_t nvpt_bell_poll(struct file *file, poll_table *table)
{
	struct nvpt_ring *ring = file->private_data;
	__poll_t events = EPOLLOUT | EPOLLWRNORM;

	poll_wait(file, &ring->wait, table);
	if (atomic_read(&ring->rung))
		events |= EPOLLIN | EPOLLRDNORM;
	if (READ_ONCE(ring->np->gone))
		events |= EPOLLERR | EPOLLHUP;
	return events;
}

static int nvpt_bell_release(struct inode *inode, struct file *file)
{
	struct nvpt_ring *ring = file->private_data;

	nvpt_put(ring->np);
	return 0;
}

static const struct file_operations nvpt_bell_ops = {
	.owner = THIS_MODULE,
	.read = nvpt_bell_read,
	.write = nvpt_bell_write,
	.poll = nvpt_bell_poll,
	.release = nvpt_bell_release,
	.llseek = noop_llseek,
};

static long nvpt_new_bell(struct nvpt *np, u32 index)
{
	struct nvpt_ring *ring;
	int fd;

	if (index >= np->num_tx + np->num_rx)
		return -EINVAL;
	ring = nvpt_ring_at(np, index);
	kref_get(&np->ref);
	fd = anon_inode_getfd("[nvptnet]", &nvpt_bell_ops, ring,
			      O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		nvpt_put(np);
	return fd;
}

/* ---- the device ---- */

static int nvpt_cdev_open(struct inode *inode, struct file *file)
{
	struct nvpt *np = container_of(file->private_data, struct nvpt, misc);
	u32 i;

	/* misc_open() holds its lock, so the device cannot be unregistered. */
	rtnl_lock();
	if (np->opened) {
		rtnl_unlock();
		return -EBUSY;
	}
	np->opened = true;
	kref_get(&np->ref);
	nvpt_net_down(np);
	np->user = NVPT_USER_NETMAP;
	np->mapping = file->f_mapping;
	for (i = 0; i < np->num_tx + np->num_rx; i++)
		atomic_set(&nvpt_ring_at(np, i)->rung, 0);
	rtnl_unlock();
	file->private_data = np;
	return 0;
}

static int nvpt_cdev_release(struct inode *inode, struct file *file)
{
	struct nvpt *np = file->private_data;

	rtnl_lock();
	if (!np->gone) {
		nvpt_command(np, NVPT_CMD_STOP, 0, 0);
		np->user = NVPT_USER_NET;
		if (netif_running(np->netdev) && nvpt_net_up(np))
			schedule_delayed_work(&np->news, HZ);
	}
	np->opened = false;
	np->mapping = NULL;
	rtnl_unlock();
	nvpt_put(np);
	return 0;
}

static long nvpt_cdev_ioctl(struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	struct nvpt *np = file->private_data;
	struct nvpt_start start;
	long done = -ENODEV;
	u32 index;

	down_read(&np->gone_lock);
	if (np->gone)
		goto out;
	switch (cmd) {
	case NVPT_IOC_START:
		done = -EFAULT;
		if (!copy_from_user(&start, (void __user *)arg, sizeof(start)))
			done = nvpt_command(np, NVPT_CMD_START, start.features,
					    start.extra_bufs);
		break;
	case NVPT_IOC_BELL:
		done = -EFAULT;
		if (!get_user(index, (u32 __user *)arg))
			done = nvpt_new_bell(np, index);
		break;
	default:
		done = -ENOTTY;
	}
out:
	up_read(&np->gone_lock);
	return done;
}

static vm_fault_t nvpt_cdev_fault(struct vm_fault *vmf)
{
	struct nvpt *np = vmf->vma->vm_private_data;
	u64 at = (u64)vmf->pgoff << PAGE_SHIFT;
	vm_fault_t done = VM_FAULT_SIGBUS;

	down_read(&np->gone_lock);
	if (!np->gone && at < np->mem_len)
		done = vmf_insert_pfn(vmf->vma, vmf->address,
				      (np->mem_start + at) >> PAGE_SHIFT);
	up_read(&np->gone_lock);
	return done;
}

static void nvpt_vma_open(struct vm_area_struct *vma)
{
	struct nvpt *np = vma->vm_private_data;

	kref_get(&np->ref);
}

static void nvpt_vma_close(struct vm_area_struct *vma)
{
	nvpt_put(vma->vm_private_data);
}

static const struct vm_operations_struct nvpt_vm_ops = {
	.open = nvpt_vma_open,
	.close = nvpt_vma_close,
	.fault = nvpt_cdev_fault,
};

static int nvpt_cdev_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct nvpt *np = file->private_data;
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 len = vma->vm_end - vma->vm_start;

	if (start > np->mem_len || len > np->mem_len - start)
		return -EINVAL;
	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	vm_flags_set(vma, VM_PFNMAP | VM_IO | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_ops = &nvpt_vm_ops;
	vma->vm_private_data = np;
	kref_get(&np->ref);
	return 0;
}

static const struct file_operations nvpt_cdev_ops = {
	.owner = THIS_MODULE,
	.open = nvpt_cdev_open,
	.release = nvpt_cdev_release,
	.unlocked_ioctl = nvpt_cdev_ioctl,
	.mmap = nvpt_cdev_mmap,
	.llseek = noop_llseek,
};

static DEFINE_IDA(nvpt_ida);

int nvpt_cdev_register(struct nvpt *np)
{
	int id = ida_alloc(&nvpt_ida, GFP_KERNEL);
	int err;

	if (id < 0)
		return id;
	snprintf(np->misc_name, sizeof(np->misc_name), "nvptnet%d", id);
	np->misc.minor = MISC_DYNAMIC_MINOR;
	np->misc.name = np->misc_name;
	np->misc.fops = &nvpt_cdev_ops;
	np->misc.parent = &np->pdev->dev;
	np->misc.mode = 0600;
	err = misc_register(&np->misc);
	if (err)
		ida_free(&nvpt_ida, id);
	return err;
}

/* Takes the memory from programs that have the device open, and wakes them. */
void nvpt_cdev_unregister(struct nvpt *np)
{
	u32 i;
	int id;

	misc_deregister(&np->misc);
	if (sscanf(np->misc_name, "nvptnet%d", &id) == 1)
		ida_free(&nvpt_ida, id);
	down_write(&np->gone_lock);
	WRITE_ONCE(np->gone, true);
	up_write(&np->gone_lock);
	rtnl_lock();
	if (np->mapping)
		unmap_mapping_range(np->mapping, 0, 0, 1);
	rtnl_unlock();
	for (i = 0; i < np->num_tx + np->num_rx; i++)
		wake_up_interruptible_poll(&nvpt_ring_at(np, i)->wait,
					   EPOLLERR | EPOLLHUP);
}
