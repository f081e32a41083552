"""Addresses of the shop."""

from django.contrib import admin
from django.urls import path

from dashboard import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("orders", views.place_order),
    path("orders/<int:order_id>", views.show_order),
]
