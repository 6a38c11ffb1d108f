package controller

import "context"

func (h *Host) inventoryLoop(ctx context.Context) { <-ctx.Done() }
